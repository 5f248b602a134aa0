"""`history` and `undo`: what was done to the homes of this host, and giving it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from exporter import logs
from exporter.agent.home_state import HomeState
from exporter.agent.manual_reap import ONLY_OBSERVED
from exporter.agent.one_shot import found_homes, looked
from exporter.agent.options import Options
from exporter.agent.scan_loop import Rounds
from exporter.config.load import load
from exporter.config.settings import HomeSettings
from exporter.errors import ExporterError, HomeError, WorkerError
from exporter.reaper.orders import Undone
from exporter.runs.models import ActionState, Kind, Run, Skipped
from exporter.runs.recovery import not_known
from exporter.text import counted, visible
from exporter.workers import client

_SESSION: Final = "delete_session"
_UNDOABLE: Final = frozenset({Kind.REAP, Kind.PRUNE})

HomeRun = tuple[str, Run]
"""What one run did in the home of that label."""

log = logs.get("past")


def history(options: Options) -> tuple[list[dict[str, Any]], list[str]]:
    """All runs in all homes, the newest first, and the homes whose journal cannot be read."""
    unread: list[str] = []
    with found_homes(options, load(options.config_file)) as rounds:
        rows = [run.row(state.home.label) for state, run in _runs(rounds, unread)]
    return sorted(rows, key=lambda row: (row["started_at"], row["run"]), reverse=True), unread


def history_of(options: Options, run: str) -> tuple[list[dict[str, Any]], list[str]]:
    """One run in every home it acted on, with what it did to each; and the homes not readable."""
    unread: list[str] = []
    with found_homes(options, load(options.config_file)) as rounds:
        found = [(state, each) for state, each in _runs(rounds, unread) if each.id == run]
        rows = [
            {
                **each.row(state.home.label),
                "why": each.why,
                "items": [
                    {
                        "action": action.action,
                        "policy": action.policy or None,
                        "target": action.target,
                        "reason": action.reason,
                        "bytes": action.bytes,
                        "state": action.state.value,
                        "why": action.why,
                    }
                    for action in client.actions_of(rounds.worker(state.home), state.home, run)
                ],
            }
            for state, each in found
        ]
    if not rows:
        raise ExporterError(_no_such_run(run, unread))
    return rows, unread


def _no_such_run(run: str, unread: list[str]) -> str:
    hint = f"; could not read {', '.join(unread)}" if unread else ""
    return f"no run {visible(run)[:64]} in any home{hint}; `hermes-exporter history` lists them"


def undo(
    options: Options,
    run: str | None,
    announce: Callable[[Sequence[HomeRun], Sequence[HomeRun]], None],
) -> Undone:
    """Give back what a run took, in every home it acted on; None is the last that can be.

    Before that, announce the run, and the newest one if `run` is None and that is another.
    """
    settings = load(options.config_file)
    unread: list[str] = []
    with looked(options, settings, confirm=False, settle=True) as (rounds, _):
        runs = list(_runs(rounds, unread))
        chosen = run or _last([each for _, each in runs])
        states = [state for state, each in runs if each.id == chosen]
        if not states:
            raise ExporterError(_no_such_run(chosen, unread))
        newest = _newest([each for _, each in runs]) if run is None else chosen
        announce(_in_homes(runs, chosen), _in_homes(runs, newest) if newest != chosen else [])
        restored: list[str] = []
        failed: list[Skipped] = []
        is_known = True
        for state in states:
            undone = _undo(rounds, state, settings.for_home(state.home.named_as), chosen)
            restored.extend(undone.restored)
            failed.extend(undone.failed)
            is_known = is_known and undone.is_known
            if undone.why:
                failed.append(Skipped(state.home.label, undone.why))
    return Undone(chosen, tuple(restored), tuple(failed), is_known=is_known)


def at_stake(options: Options, run: str | None) -> list[str]:
    """What could still be given back, and no longer after a purge of this run, or of all."""
    sessions = others = 0
    lines: list[str] = []
    with found_homes(options, load(options.config_file)) as rounds:
        for state, each in _runs(rounds, []):
            if each.kind is not Kind.PRUNE or run not in (None, each.id):
                continue
            if each.finished_at is None:
                lines.append(f"run {each.id} was not finished: what it took is not known")
            if each.finished_at is None or each.is_given_back or each.undoable_until is None:
                continue
            try:
                actions = client.actions_of(rounds.worker(state.home), state.home, each.id)
            except (HomeError, WorkerError, TimeoutError) as error:
                rounds.failed(state.home, error)
                lines.append(f"what run {each.id} took cannot be told: {error}")
                continue
            taken = [action for action in actions if action.state is ActionState.DONE]
            sessions += sum(action.action == _SESSION for action in taken)
            others += sum(action.action != _SESSION for action in taken)
    counts = ((sessions, "session"), (others, "other item"))
    parts = [counted(count, noun) for count, noun in counts if count]
    if parts:
        lines.append(f"{' and '.join(parts)} can then no longer be given back")
    return lines


def _in_homes(runs: Sequence[tuple[HomeState, Run]], run: str) -> list[HomeRun]:
    return [(state.home.label, each) for state, each in runs if each.id == run]


def _undo(rounds: Rounds, state: HomeState, own: HomeSettings, run: str) -> Undone:
    if not state.home.may_write:
        return Undone(run, (), (), ONLY_OBSERVED)
    if state.evidence is None:
        return Undone(run, (), (), state.detail or "it could not be seen who uses this home")
    try:
        return client.undo(rounds.worker(state.home), state.home, state.evidence, own, run)
    except HomeError as error:
        return Undone(run, (), (), str(error)[:300])
    except (WorkerError, TimeoutError) as error:
        rounds.failed(state.home, error)
        return Undone(run, (), (), not_known(run, error), is_known=False)


def _runs(rounds: Rounds, unread: list[str]) -> Iterator[tuple[HomeState, Run]]:
    for state in rounds.states():
        if state.home.problem:
            unread.append(state.home.label)
            continue
        try:
            for run in client.history(rounds.worker(state.home), state.home):
                yield state, run
        except (HomeError, WorkerError, TimeoutError) as error:
            log.warn("no history", home=state.home.label, why=str(error))
            unread.append(state.home.label)


def _last(runs: list[Run]) -> str:
    """The last that can be given back; what only emptied the trash cannot."""
    acted = [each for each in runs if each.kind in _UNDOABLE and _may_have_acted(each)]
    taken = [
        each
        for each in acted
        if each.undoable_until is not None and not each.is_given_back and not each.is_purge
    ]
    if not acted:
        raise ExporterError("no run has taken anything yet; there is nothing to give back")
    if not taken:
        raise ExporterError("all was given back, or its trash is gone; nothing can be given back")
    return _newest(taken)


def _newest(runs: list[Run]) -> str:
    """Of those that took something; to empty the trash is not to take."""
    acted = [each for each in runs if each.kind in _UNDOABLE and _may_have_acted(each)]
    taken = [each for each in acted if not each.is_purge]
    return max(taken, key=lambda each: (each.started_at, each.id)).id


def _may_have_acted(run: Run) -> bool:
    """Of a run that is not finished nobody knows what it has done, until it is settled."""
    return run.actions > 0 or run.finished_at is None
