"""Deleting 3,000 sessions beside a writing Hermes, and restoring them, against its own prune."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from msgspec import Struct

from benchmarks import homes
from benchmarks.homes import Part
from benchmarks.keeping import maintaining_hermes
from benchmarks.line import Line, Setting
from benchmarks.measure import Timings, percentile, timed
from exporter.evidence.openers import KnownOpeners
from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.undo import undo
from exporter.runs.models import Outcome
from exporter.writing.target import Target
from tests.support.evidence import evidence
from tests.support.home_scans import sql
from tests.support.session_pruning import planned
from tests.support.wal import wal_size, wal_watched

_SESSIONS = 3_000
_MESSAGES = 70_000
_MARK = "benchmarked"
"""The end reason of the sessions to delete: Hermes can prune by end reason."""


class _Round(Struct, frozen=True):
    hold: float
    wait_p99: float
    seconds: float
    undo_seconds: float
    undo_hold: float
    peer_hold: float
    peer_wait: float
    failures: int
    messages: int
    wal_beside: int
    """How much larger the WAL got beside a writing Hermes, at any moment."""
    wal_idle: int
    """The same in a home that no process has open."""
    wal_left: int
    """What was left of it there."""


def run(setting: Setting) -> Iterator[Line]:
    source = homes.home(setting.scale, Part.DATABASE)
    place = source.parent / "prune"
    try:
        rounds = [_round(source, place, setting.scale) for _ in range(setting.rounds)]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    peer = "Hermes's own prune"
    holds = f"{_ms(rounds, 'hold')} to {median(each.peer_hold for each in rounds):.2f} s"
    yield _line("prune: longest hold of the write lock", rounds, "hold", "peer_hold", 1 / 60, holds)
    waits = f"{_ms(rounds, 'wait_p99')} to {median(each.peer_wait for each in rounds):.2f} s"
    yield _line(
        "prune: a writer's wait, p99 to the longest",
        rounds,
        "wait_p99",
        "peer_wait",
        1 / 100,
        waits,
    )
    note = f"{_s(rounds, 'seconds')} to {_s(rounds, 'peer_hold')}; {rounds[0].messages} messages"
    yield _line("prune: in all", rounds, "seconds", "peer_hold", 4.0, note)
    yield _line(
        "undo of that prune",
        rounds,
        "undo_seconds",
        "seconds",
        2.0,
        f"{_s(rounds, 'undo_seconds')}, longest hold {_ms(rounds, 'undo_hold')}",
        peer="the prune itself",
    )
    for where, name in (("beside a writer", "wal_beside"), ("no process there", "wal_idle")):
        yield Line(
            f"prune and undo: growth of the WAL, {where}",
            achieved=max(getattr(each, name) for each in rounds) / 2**20,
            limit=64,
            unit="MiB",
            peer="nothing",
        )
    yield Line(
        "prune and undo: left of the WAL, no process there",
        achieved=max(each.wal_left for each in rounds),
        limit=0,
        unit="bytes",
        peer="nothing",
    )
    yield Line(
        "prune and undo: errors that reach the writer",
        achieved=sum(each.failures for each in rounds),
        limit=0,
        unit="errors",
        peer=peer,
    )


def _line(
    job: str,
    rounds: list[_Round],
    ours: str,
    theirs: str,
    limit: float,
    note: str,
    peer: str = "Hermes's own prune",
) -> Line:
    times = Timings(*([getattr(each, side) for each in rounds] for side in (ours, theirs)))
    return Line(job, achieved=times.ratio, limit=limit, peer=peer, note=note, rounds=times)


def _ms(rounds: list[_Round], name: str) -> str:
    return f"{median(getattr(each, name) for each in rounds) * 1e3:.1f} ms"


def _s(rounds: list[_Round], name: str) -> str:
    return f"{median(getattr(each, name) for each in rounds):.1f} s"


def _round(source: Path, place: Path, scale: float) -> _Round:
    peer_hold, peer_wait = _hermes_prunes(source, place, scale)
    home, sessions, messages = _copy(source, place, scale)
    plan = planned(home, sessions)
    outcomes: list[Outcome] = []
    returns: list[Outcome] = []
    wal_before = wal_size(home)
    with maintaining_hermes(home) as writer, wal_watched(home) as beside:
        site = Target(str(home), home.stat().st_uid, KnownOpeners.of(evidence(home)))
        writer.ask("start", session="beside-the-prune")
        seconds = timed(lambda: outcomes.append(execute(plan, site, keep_seconds=3600.0)))
        pruning = writer.ask("stop")
        writer.ask("start", session="beside-the-undo")
        undo_seconds = timed(lambda: returns.append(undo(outcomes[0].run or "", site)))
        undoing = writer.ask("stop")
    home, sessions, messages = _copy(source, place, scale)
    wal_idle, wal_left = _in_idle_home(home, sessions)
    left = len(outcomes[0].skipped) + len(returns[0].skipped)
    if left > len(sessions) / 100:
        raise RuntimeError(f"not all was done: {_left(outcomes[0], returns[0])}")
    return _Round(
        hold=outcomes[0].longest_hold_seconds,
        wait_p99=percentile(pruning["waits"], 0.99),
        seconds=seconds,
        undo_seconds=undo_seconds,
        undo_hold=returns[0].longest_hold_seconds,
        peer_hold=peer_hold,
        peer_wait=peer_wait,
        failures=len(pruning["failures"]) + len(undoing["failures"]),
        messages=messages,
        wal_beside=max(0, beside[0] - wal_before),
        wal_idle=wal_idle,
        wal_left=wal_left,
    )


def _in_idle_home(home: Path, sessions: list[str]) -> tuple[int, int]:
    """Return by how much the WAL grew, and what was left of it."""
    before = wal_size(home)
    with wal_watched(home) as largest:
        for act in ("prune", "undo"):
            site = Target(str(home), home.stat().st_uid, KnownOpeners.of(evidence(home)))
            if act == "prune":
                run = execute(planned(home, sessions), site, keep_seconds=3600.0).run or ""
            else:
                undo(run, site)
    return max(0, largest[0] - before), wal_size(home)


def _left(outcome: Outcome, returned: Outcome) -> str:
    left = (*outcome.skipped, *returned.skipped)
    return f"{outcome.why} {returned.why} {len(left)} of {len(outcome.done)}: {left[:1]}"


def _hermes_prunes(source: Path, place: Path, scale: float) -> tuple[float, float]:
    """Return how long its transaction takes, and the longest wait of a writer."""
    home, sessions, _ = _copy(source, place, scale)
    with maintaining_hermes(home) as writer, maintaining_hermes(home) as pruner:
        writer.ask("start", session="beside-the-prune")
        pruned = pruner.ask("prune", end_reason=_MARK)
        waits = writer.ask("stop")["waits"]
    if pruned["deleted"] != len(sessions):
        raise RuntimeError(f"Hermes deleted {pruned['deleted']} of {len(sessions)} sessions")
    return float(pruned["seconds"]), max(waits)


def _copy(source: Path, place: Path, scale: float) -> tuple[Path, list[str], int]:
    """Return a separate home, the sessions to delete, and their number of messages."""
    shutil.rmtree(place, ignore_errors=True)
    home = place / "home"
    home.mkdir(parents=True, mode=0o700)
    shutil.copyfile(source / Part.DATABASE, home / Part.DATABASE)
    sessions, messages = _choose(home, scale)
    names = ", ".join(f"'{session}'" for session in sessions)
    sql(home, f"UPDATE sessions SET end_reason = '{_MARK}' WHERE id IN ({names});")
    return home, sessions, messages


def _choose(home: Path, scale: float) -> tuple[list[str], int]:
    """Return ended sessions without references: the oldest with messages, then others."""
    rows = [
        line.split("|")
        for line in sql(
            home,
            "SELECT s.id, (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id) FROM "
            "sessions s WHERE s.ended_at IS NOT NULL AND s.end_reason <> 'compression' AND "
            "s.parent_session_id IS NULL AND s.id NOT IN (SELECT parent_session_id FROM sessions "
            "WHERE parent_session_id IS NOT NULL) AND s.session_key IS NULL ORDER BY s.started_at;",
        ).splitlines()
    ]
    share = min(scale, 1.0)  # in a larger database the same work, so that its cost can be compared
    wanted, most = round(_SESSIONS * share), _MESSAGES * share
    chosen: list[str] = []
    messages = 0
    for session, count in rows:
        if len(chosen) < wanted and messages + int(count) <= most:
            chosen.append(session)
            messages += int(count)
    return chosen, messages
