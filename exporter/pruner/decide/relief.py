"""By how much a run should have lowered the thresholds: no run follows one that did not help."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from exporter.pruner.decide.thresholds import Mark, Pressure, note_run
from exporter.pruner.models import Act, Policy, PruneAction, PruneMemory

_ON_DISK = frozenset({Act.DELETE_FILE, Act.DELETE_REPO, Act.DELETE_PROJECT})


def note_done(
    memory: PruneMemory, pressure: Pressure, done: Collection[PruneAction], now: float
) -> PruneMemory:
    """Remember a run that has done this."""
    return note_run(memory, pressure, relief_of(done, pressure), now)


def relief_of(actions: Collection[PruneAction], pressure: Pressure) -> Mapping[str, float]:
    """What these actions lower each threshold by, in its own unit."""
    relief: dict[str, float] = {}
    for mark, amount in (each for action in actions for each in _lowers(action)):
        relief[mark.value] = relief.get(mark.value, 0.0) + amount
    disk = pressure.level(Mark.DISK_USED)
    if disk is not None and disk.reading is not None and Mark.DISK_USED.value in relief:
        relief[Mark.DISK_USED.value] /= disk.reading.unit_bytes
    return relief


def _lowers(action: PruneAction) -> Iterator[tuple[Mark, float]]:
    match action.action:
        case Act.DELETE_FILE if action.target.startswith("checkpoints/"):
            yield Mark.CHECKPOINTS, action.bytes
        case Act.DELETE_FILE:
            yield Mark.TRANSCRIPTS, action.bytes
        case Act.DELETE_REPO | Act.DELETE_PROJECT:
            yield Mark.CHECKPOINTS, action.bytes
        case Act.DELETE_SESSION:
            yield Mark.STATE_DB, action.bytes
            if action.policy is Policy.EMPTY_SESSIONS:
                yield Mark.EMPTY_SESSIONS, 1
    if action.action in _ON_DISK and "session" not in action.expected:
        yield Mark.DISK_USED, action.bytes
