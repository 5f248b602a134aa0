"""This host, looked at once: what the commands other than `serve` show."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Final

from exporter import logs
from exporter.agent import status as host_status
from exporter.agent.options import Options
from exporter.agent.run_result import unknown_sources
from exporter.agent.scan_loop import LOOK_SECONDS, READ_SECONDS, Rounds
from exporter.agent.session_list import session_row
from exporter.agent.state_store import Journal, recall, state_lock
from exporter.agent.visibility import capabilities, is_losing
from exporter.collectors.render import Metrics
from exporter.collectors.view import HostView
from exporter.config.load import load, read
from exporter.config.settings import Settings
from exporter.errors import ExporterError, HomeError, UsageError, WorkerError
from exporter.text import counted, visible
from exporter.workers import client

_PATIENCE_SECONDS: Final = LOOK_SECONDS + READ_SECONDS
_BETWEEN_LOOKS_SECONDS: Final = 1.0

log = logs.get("host")


def status(options: Options) -> dict[str, Any]:
    """Each home on one screen."""
    settings = load(options.config_file)
    with looked(options, settings) as (rounds, _):
        return host_status.status(rounds.look_at_thresholds(), settings, public=False)


def sessions(
    options: Options, verdict: str | None = None, source: str | None = None
) -> tuple[list[dict[str, Any]], list[str], list[str], int]:
    """The open sessions of every home; of which homes not all are known, with the reason; what
    is to be said of a source that no session has; and how many homes were read."""
    with looked(options, load(options.config_file)) as (rounds, view):
        rows = [
            row
            for state in rounds.states()
            for row in state.session_rows(public=False)
            if verdict in (None, row["verdict"]) and source in (None, row["source"])
        ]
        wanted = () if source is None else (source,)
        notes = unknown_sources(wanted, (state.snapshot for state in rounds.states()))
    missing = [f"{home.label} (cannot be read)" for home in view.homes if not home.up]
    missing += [
        f"{home.label} ({home.sessions_left_out} more are too many to list)"
        for home in view.homes
        if home.sessions_left_out
    ]
    return rows, missing, notes, sum(home.up for home in view.homes)


def count_homes(options: Options) -> int:
    """How many homes there are to be looked at, readable or not."""
    with found_homes(options, load(options.config_file)) as rounds:
        return sum(1 for _ in rounds.states())


def explain(options: Options, session_id: str) -> dict[str, Any]:
    """Every piece of evidence and every rule for one session."""
    with looked(options, load(options.config_file)) as (rounds, view):
        found = rounds.explain(session_id) or rounds.explain(_whole_id(rounds, session_id))
    if not found:
        unread = [home.label for home in view.homes if not home.up]
        hint = f"; could not read {', '.join(unread)}" if unread else ""
        raise ExporterError(
            f"no open session {visible(session_id)} in any home{hint}; "
            "`hermes-exporter sessions` lists them"
        )
    if len(found) > 1:
        homes = ", ".join(label for label, _, _ in found)
        raise UsageError(f"session {visible(session_id)} is in several homes ({homes}); add --home")
    label, session, judgement = found[0]
    row = session_row(label, session, judgement.verdict, judgement.evidence)
    row["rules"] = [
        {"rule": each.rule, "holds": each.holds, "why": each.why} for each in judgement.rules
    ]
    return row


_SHORTEST_BEGINNING: Final = 4


def _whole_id(rounds: Rounds, beginning: str) -> str:
    """The one open session whose id begins so; the beginning itself if there is none."""
    if len(beginning) < _SHORTEST_BEGINNING:
        return beginning
    ids = {
        row["id"]
        for state in rounds.states()
        for row in state.session_rows(public=False)
        if row["id"].startswith(beginning)
    }
    if len(ids) > 1:
        some = ", ".join(visible(each) for each in sorted(ids)[:3])
        raise UsageError(
            f"{counted(len(ids), 'open session')} begin with {visible(beginning)} "
            f"({some}, ...); give more of the id"
        )
    return ids.pop() if ids else beginning


def metrics_text(options: Options) -> tuple[bytes, list[str]]:
    """The metrics in the text format, with counters that go on from the last time.

    And the homes that could not be read.
    """
    settings = load(options.config_file)
    with state_lock(options.state_dir), closing(Journal.open(options.state_dir)) as journal:
        metrics = Metrics(options.disabled_collectors, _ignore, of_process=False)
        rounds = _rounds(options, settings, journal, file_patterns=metrics.file_patterns)
        try:
            _run(rounds, settings)
            view = rounds.look_at_thresholds()
            return metrics.render(view).text, [home.label for home in view.homes if not home.up]
        finally:
            rounds.close()


def check(options: Options) -> dict[str, Any]:
    """Is the configuration right, and what can be seen of each home?"""
    settings, problems = Settings(), list[str]()
    if options.config_file is not None:
        settings, problems = read(options.config_file)
    if problems:
        return {"ok": False, "config": problems, "homes": []}
    with looked(options, settings) as (rounds, view):
        homes = [capabilities(home) for home in view.homes]
        homes.extend(
            {
                "home": None,
                "path": refusal.path,
                "can": [],
                "cannot": [{"what": "adopt", "why": refusal.why, "grant": refusal.fix}],
            }
            for refusal in rounds.census.refused
            if refusal.path not in {home.path for home in view.homes}
        )
    return {
        "ok": all(home.up and not is_losing(home) for home in view.homes),
        "config": [],
        "homes": homes,
    }


def _run(
    rounds: Rounds, settings: Settings, pause_seconds: float = _BETWEEN_LOOKS_SECONDS
) -> HostView:
    """As many rounds as a verdict needs: one look never makes a session dead."""
    view = rounds.run(_PATIENCE_SECONDS)
    needed = [settings.for_home(state.home.named_as) for state in rounds.states()]
    for _ in range(max((own.reaper.confirmations for own in needed), default=1) - 1):
        if not any(home.verdicts for home in view.homes):
            break
        time.sleep(pause_seconds)
        view = rounds.run(_PATIENCE_SECONDS)
    return view


@contextmanager
def looked(
    options: Options,
    settings: Settings,
    pause_seconds: float = _BETWEEN_LOOKS_SECONDS,
    *,
    confirm: bool = True,
    settle: bool = False,
    presume_by_clock: bool = False,
) -> Iterator[tuple[Rounds, HostView]]:
    """Look at this host: once, or as often as a verdict needs.

    With `settle` what killed runs left open is settled before: it would look like something else.
    """
    with _unscanned(options, settings, presume_by_clock) as rounds:
        look = (
            partial(_run, rounds, settings, pause_seconds)
            if confirm
            else partial(rounds.run, _PATIENCE_SECONDS)
        )
        view = look()
        yield rounds, look() if settle and _settle(rounds) else view


def _settle(rounds: Rounds) -> bool:
    """Settle what killed runs left open; whether there was anything, so that homes have changed."""
    unsettled = [each for each in rounds.states() if each.unsettled_runs and each.home.may_write]
    for state in unsettled:
        if state.evidence is None:
            continue
        try:
            reply = client.settle(rounds.worker(state.home), state.home, state.evidence)
        except (HomeError, WorkerError, TimeoutError) as error:
            rounds.failed(state.home, error)
            log.warn("earlier runs not settled", home=state.home.label, why=str(error))
            continue
        for left in reply.left:
            log.warn("run not settled", home=state.home.label, run=left.target, why=left.why)
    return bool(unsettled)


def unsettled(rounds: Rounds) -> Iterator[str]:
    """A line for each run that is under way or was killed: a plan shows what it left half done."""
    for state in rounds.states():
        for run in filter(None, state.unsettled_runs):
            yield (
                f"run {run} was not finished in {visible(state.home.label)}; "
                "what acts next settles it first, if it is not under way"
            )


@contextmanager
def found_homes(options: Options, settings: Settings) -> Iterator[Rounds]:
    """The homes of this host, found and not looked into."""
    with _unscanned(options, settings) as rounds:
        rounds.discover()
        yield rounds


@contextmanager
def _unscanned(
    options: Options, settings: Settings, presume_by_clock: bool = False
) -> Iterator[Rounds]:
    """Remembering nothing but what an agent's state directory tells."""
    journal = Journal.in_memory()
    recall(options.state_dir, journal)
    rounds = _rounds(options, settings, journal, presume_by_clock)
    try:
        yield rounds
    finally:
        rounds.close()
        journal.close()


def _rounds(
    options: Options,
    settings: Settings,
    journal: Journal,
    presume_by_clock: bool = False,
    file_patterns: Sequence[str] = (),
) -> Rounds:
    for path in options.homes:
        if not os.path.isdir(path):
            raise UsageError(f"--home {path}: no such directory; give a HERMES_HOME directory")
    return Rounds(
        settings,
        journal,
        named=options.homes,
        every_session=True,
        acting=False,
        presume_by_clock=presume_by_clock,
        file_patterns=file_patterns,
    )


def _ignore(name: str, error: Exception) -> None:
    """hermes_exporter_collector_success says it in the output itself."""
