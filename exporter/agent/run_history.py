"""The runs in the homes of this host: list them, undo one, empty the trash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from exporter import logs
from exporter.agent.act_request import purge_request, settle_request, undo_request
from exporter.agent.home_state import HomeState
from exporter.agent.manual_run import ONLY_OBSERVED, Acting
from exporter.agent.run_result import RunResult
from exporter.agent.scan_loop import ScanLoop
from exporter.errors import (
    ExporterError,
    HomeError,
    InterruptedRunError,
    RefusedError,
    WorkerError,
)
from exporter.runs.folder import cause_of
from exporter.runs.models import (
    STOPPED,
    ActionState,
    Outcome,
    Run,
    RunKind,
    RunOutcome,
    Skipped,
    outcome_of,
)
from exporter.runs.recovery import not_known
from exporter.snapshot import Trouble
from exporter.text import counted, escape_control, format_size
from exporter.workers import protocol
from exporter.workers.cancellation import Cancellation
from exporter.workers.protocol import ActionRow, RunActionsRequest, RunsRequest

_SESSION: Final = "delete_session"
_UNDOABLE: Final = frozenset({RunKind.REAP, RunKind.PRUNE})
_RUNS_NAMED: Final = 3
_NOT_SEEN: Final = "it could not be seen who uses this home"

RunInHome = tuple[str, Run]
"""The label of a home, and what one run did there."""
Announce = Callable[[Sequence[RunInHome], Sequence[RunInHome]], None]
"""Called with the run that is about to be undone and, if there is a newer one, with the newest."""


class UndoReport(Struct, frozen=True):
    """What became of an undo."""

    outcome: Outcome
    held_seconds: float
    """For how long later runs leave what was restored alone."""
    is_of_reap: bool = False
    """True if sessions were opened again; otherwise it gave back what a prune had taken."""
    unread: list[str] = []
    """Homes whose history cannot be read: the run may have acted on them too."""


log = logs.get("history")


# Listing


def runs_of(
    loop: ScanLoop, unread: list[str], states: Sequence[HomeState] | None = None
) -> Iterator[tuple[HomeState, Run]]:
    """Yield the runs of these homes, or of all homes.

    A home whose journal cannot be read is added to `unread`, with the reason.
    """
    for state in loop.states() if states is None else states:
        if state.home.problem:
            unread.append(f"{state.home.label} ({state.home.problem})")
            continue
        try:
            for run in _runs(loop, state):
                yield state, run
        except (HomeError, WorkerError, TimeoutError) as error:
            unread.append(f"{state.home.label} ({cause_of(error)})")


def _runs(loop: ScanLoop, state: HomeState) -> list[Run]:
    request = RunsRequest(state.home.path, state.home.owner)
    return loop.call(state.home, protocol.LIST_RUNS, request)


def _actions(loop: ScanLoop, state: HomeState, run: str) -> list[ActionRow]:
    request = RunActionsRequest(state.home.path, state.home.owner, run)
    return loop.call(state.home, protocol.SHOW_RUN, request)


def show_run(
    loop: ScanLoop, run: str, unread: list[str], states: Sequence[HomeState] | None = None
) -> list[dict[str, Any]]:
    """Return one run in every home it acted on, with each of its actions."""
    found = [(state, each) for state, each in runs_of(loop, unread, states) if each.id == run]
    if not found:
        raise ExporterError(_no_such_run(run, unread))
    return [
        {
            **each.row(state.home.label),
            "why": each.why,
            "trimmed": each.trimmed,
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
                for action in _actions(loop, state, run)
            ],
        }
        for state, each in found
    ]


def _no_such_run(run: str, unread: list[str]) -> str:
    hint = f"; could not read {', '.join(unread)}" if unread else ""
    return (
        f"no run {escape_control(run)[:64]} in any home{hint}; `hermes-exporter history` lists them"
    )


# Settling runs that were killed


def settle(loop: ScanLoop, states: Sequence[HomeState]) -> None:
    """Find out what killed runs did to these homes, and finish what was half done."""
    for state in states:
        if state.evidence is None:
            continue
        request = settle_request(state.home, state.evidence)
        try:
            reply = loop.call(state.home, protocol.SETTLE, request)
        except (HomeError, WorkerError, TimeoutError) as error:
            # The run or undo that follows reports a refusal, and a home that cannot be read.
            if not isinstance(error, RefusedError) and state.trouble is Trouble.NONE:
                log.warn("earlier runs not settled", home=state.home.label, why=str(error))
            continue
        for left in reply.left:
            log.warn("run not settled", home=state.home.label, run=left.target, why=left.why)


def settle_all(loop: ScanLoop) -> None:
    """Settle every home whose journal has an unfinished run, or is damaged."""
    settle(loop, [state for state in loop.states() if _has_open_run(loop, state)])


def _has_open_run(loop: ScanLoop, state: HomeState) -> bool:
    if state.home.problem or not state.home.may_write:
        return False
    try:
        return any(run.finished_at is None for run in _runs(loop, state))
    except HomeError:
        return True  # settling repairs a damaged journal
    except (WorkerError, TimeoutError):
        return False


# Undo


def undo(
    loop: ScanLoop,
    run: str | None,
    announce: Announce,
    acting: Acting,
) -> UndoReport:
    """Restore what a run took, in every home it acted on.

    If `run` is None, undo the last run that can be undone. First announce the run; if a newer run
    exists that cannot be undone, announce that too.
    """
    unread: list[str] = []
    runs = list(runs_of(loop, unread))
    chosen = run or _last([each for _, each in runs], unread)
    states = [state for state, each in runs if each.id == chosen]
    if not states:
        raise ExporterError(_no_such_run(chosen, unread))
    newest = _newest([each for _, each in runs]) if run is None else chosen
    announce(_in_homes(runs, chosen), _in_homes(runs, newest) if newest != chosen else [])
    try:
        with acting(chosen) as cancellation:
            outcomes = [_undo(loop, state, chosen, cancellation) for state in states]
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"ended at once in the middle of the undo of {chosen}; "
            f"`hermes-exporter undo {chosen}` finds out what is back, and goes on"
        ) from None
    own = [loop.settings.for_home(state.home) for state in states]
    return UndoReport(
        _together(chosen, states, outcomes),
        held_seconds=max(each.prune.keep.undone_seconds for each in own),
        is_of_reap=any(each.id == chosen and each.kind is RunKind.REAP for _, each in runs),
        unread=unread,
    )


def _together(run: str, states: Sequence[HomeState], outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome in all homes; unknown or interrupted if it is so in one of them."""
    restored = tuple(target for each in outcomes for target in each.done)
    failed = tuple(skipped for each in outcomes for skipped in each.skipped) + tuple(
        Skipped(state.home.label, each.why)
        for state, each in zip(states, outcomes, strict=True)
        if each.why
    )
    found = {each.outcome for each in outcomes}
    known = outcome_of(went_wrong=bool(failed), anything_done=bool(restored))
    worst = (each for each in (RunOutcome.UNKNOWN, RunOutcome.INTERRUPTED) if each in found)
    return Outcome(run, next(worst, known), restored, failed)


def _undo(loop: ScanLoop, state: HomeState, run: str, cancellation: Cancellation | None) -> Outcome:
    home, evidence = state.home, state.evidence
    own = loop.settings.for_home(home)
    if cancellation is not None and cancellation.requested:
        return Outcome(run, RunOutcome.INTERRUPTED, why=STOPPED)
    if not home.may_write:
        return Outcome(run, RunOutcome.FAILED, why=ONLY_OBSERVED)
    if evidence is None:
        return Outcome(run, RunOutcome.FAILED, why=state.detail or _NOT_SEEN)
    try:
        request = undo_request(home, evidence, own, run)
        return loop.call(home, protocol.UNDO, request, cancellation=cancellation)
    except HomeError as error:
        return Outcome(run, RunOutcome.FAILED, why=str(error))
    except (WorkerError, TimeoutError) as error:
        return Outcome(run, RunOutcome.UNKNOWN, why=not_known(run, error))


def _in_homes(runs: Sequence[tuple[HomeState, Run]], run: str) -> list[RunInHome]:
    return [(state.home.label, each) for state, each in runs if each.id == run]


def _last(runs: list[Run], unread: Sequence[str]) -> str:
    """Return the id of the last run that can be undone; a purge of the trash cannot.

    Raise if the history of a home cannot be read: the last run may be in it.
    """
    if unread:
        raise ExporterError(
            f"not known which run was the last: the history of {', '.join(unread)} cannot be read; "
            "`hermes-exporter check` tells why, and `undo RUN` undoes one that `history` lists"
        )
    acted = [each for each in runs if each.kind in _UNDOABLE and _may_have_acted(each)]
    taken = [
        each
        for each in acted
        if each.undoable_until is not None and not each.is_undone and not each.is_purge
    ]
    if not acted:
        raise ExporterError("no run has taken anything yet; there is nothing to give back")
    if not taken:
        raise ExporterError("all was given back, or its trash is gone; nothing can be given back")
    return _newest(taken)


def _newest(runs: list[Run]) -> str:
    """Return the id of the newest run that took something; a purge does not count."""
    acted = [each for each in runs if each.kind in _UNDOABLE and _may_have_acted(each)]
    taken = [each for each in acted if not each.is_purge]
    return max(taken, key=lambda each: (each.started_at, each.id)).id


def _may_have_acted(run: Run) -> bool:
    """True if the run acted, or is not finished: what it did is unknown until it is settled."""
    return run.actions > 0 or run.finished_at is None


# Purge


def lost_by_purge(loop: ScanLoop, run: str | None) -> list[str]:
    """Return lines about what a purge of this run, or of all runs, makes impossible to restore."""
    sessions = others = 0
    unread: list[str] = []
    runs = list(runs_of(loop, unread))
    lines = list(_trash_by_home(runs, run, all_read=not unread))
    lines += [f"not known what is in the trash of {each}" for each in unread]
    for state, each in runs:
        if each.kind is not RunKind.PRUNE or run not in (None, each.id):
            continue
        if each.finished_at is None:
            lines.append(f"run {each.id} was not finished: what it took is not known")
        if each.finished_at is None or each.is_undone or each.undoable_until is None:
            continue
        try:
            actions = _actions(loop, state, each.id)
        except (HomeError, WorkerError, TimeoutError) as error:
            lines.append(f"what run {each.id} took cannot be read: {error}")
            continue
        taken = [action for action in actions if action.state is ActionState.DONE]
        sessions += sum(action.action == _SESSION for action in taken)
        others += sum(action.action != _SESSION for action in taken)
    counts = ((sessions, "session"), (others, "other item"))
    parts = [counted(count, noun) for count, noun in counts if count]
    if parts:
        lines.append(f"{' and '.join(parts)} can then no longer be given back")
    return lines


def _trash_by_home(
    runs: Sequence[tuple[HomeState, Run]], run: str | None, *, all_read: bool
) -> Iterator[str]:
    """Yield what a purge empties, home by home, and what stays.

    `all_read`: every journal could be read. Otherwise nothing is said about what stays unseen.
    """
    homes: dict[str, list[Run]] = {}
    others: list[Run] = []
    for state, each in runs:
        has_trash = each.kind is RunKind.PRUNE and each.undoable_until and not each.is_purge
        if has_trash and run in (None, each.id):
            homes.setdefault(state.home.label, []).append(each)
        elif has_trash:
            others.append(each)
    for label, emptied in homes.items():
        some = ", ".join(each.id for each in emptied[:_RUNS_NAMED])
        more = f" and {len(emptied) - _RUNS_NAMED} more" if len(emptied) > _RUNS_NAMED else ""
        of = counted(len(emptied), "run")
        yield f"{label}: the trash of {of} ({some}{more}){_took(emptied)}"
    if homes and others:
        yield f"the trash of {counted(len(others), 'other run')} stays{_took(others)}"
    elif homes and all_read:
        yield "after that nothing stays in the trash"


def _took(runs: Sequence[Run]) -> str:
    """Return `, which took 2.0 MiB`, or that all of it was given back."""
    kept = [each for each in runs if not each.is_undone]
    if not kept:
        return ", which was all given back"
    undone = f"; {len(runs) - len(kept)} of them undone" if len(kept) < len(runs) else ""
    return f", which took {format_size(sum(each.bytes for each in kept))}{undone}"


def purge(
    loop: ScanLoop,
    state: HomeState,
    run: str | None,
    result: RunResult,
    cancellation: Cancellation | None,
) -> None:
    """Empty the trash of one home: that of this run, or all of it."""

    def not_done(why: str) -> None:
        result.add_nothing_done([state.home.label], RunOutcome.FAILED, why)

    home, evidence = state.home, state.evidence
    if cancellation is not None and cancellation.requested:
        result.add_nothing_done([home.label], RunOutcome.INTERRUPTED, STOPPED)
        return
    if home.problem:
        not_done(home.problem)
        return
    try:
        known = _runs(loop, state)
        if run is not None and run not in {each.id for each in known}:
            return
        if not home.may_write:
            if any(each.kind is RunKind.PRUNE and each.undoable_until for each in known):
                not_done(ONLY_OBSERVED)
            return
        if evidence is None:
            not_done(state.detail or _NOT_SEEN)
            return
        request = purge_request(home, evidence, run)
        outcome = loop.call(home, protocol.PURGE, request, cancellation=cancellation)
    except (HomeError, WorkerError, TimeoutError) as error:
        not_done(str(error))
        return
    result.add(outcome.done, outcome)
