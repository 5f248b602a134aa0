"""What a home's run journal says, for verdicts, plans and metrics; read again when it changes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from exporter.runs.folder import NAME, RunError, cause_of, run_folder
from exporter.runs.journal import FILE, journal_of
from exporter.runs.models import (
    DELETE_SESSION,
    ENDS,
    KeptRows,
    Reaps,
    Reopening,
    Run,
    RunKind,
    RunOutcome,
)
from exporter.runs.trash import PATH, runs_in_trash
from exporter.snapshot import Count, Text, Timestamp, Word
from exporter.text import cut

_LAST_RUNS: Final = 10
_TICK_NS: Final = 2_000_000_000
_SOURCES_MAX: Final = 64
_REPORT_BYTES_MAX: Final = 100_000


_State = tuple[int, int, int, int]
_UNREADABLE: Final[_State] = (0, 0, 0, 0)
_Seen = tuple[_State | None, _State | None]
"""Of the journal, and of the folder with the trash of all runs."""


class ReapCount(Struct, frozen=True):
    """Sessions of one source that were reaped, or reopened, by one proof."""

    source: Word
    proof: Word
    sessions: Count


ReapCounts = Annotated[list[ReapCount], Meta(max_length=2 * _SOURCES_MAX)]


class PruneRunCount(Struct, frozen=True):
    """Prunes that ended in one way."""

    outcome: RunOutcome
    runs: Count
    last_at: Timestamp


class DeletedByPolicy(Struct, frozen=True):
    """What prunes have ever done by one policy, whatever was given back since."""

    policy: Word
    items: Count
    freed_bytes: Count
    """What came free at once: what waits in the trash comes free when that is emptied."""


class RunSummary(Struct, frozen=True):
    """What was done to a home, as far as the agent shows it."""

    readable: bool = True
    """False if there is a journal that cannot be read: then the rest of this is not known."""
    why: Text = ""
    """Why it cannot be read."""
    reaped: ReapCounts = []
    """All sessions that we ever ended."""
    reopened: ReapCounts = []
    """Those that were healed, because a process was running them."""
    to_heal: bool = False
    """Hermes may have continued a session that was reaped."""
    reborn: Count = 0
    """Pruned sessions that Hermes continued, and that got their messages back."""
    tripped: str | None = None
    """Why automatic reaping has stopped until a person reaps by hand."""
    pruned: Annotated[list[PruneRunCount], Meta(max_length=8)] = []
    deleted: Annotated[list[DeletedByPolicy], Meta(max_length=16)] = []
    last: Annotated[list[Run], Meta(max_length=_LAST_RUNS)] = []
    """The newest first."""
    unfinished: Annotated[list[Word], Meta(max_length=_LAST_RUNS)] = []
    """Runs that are under way or were killed, oldest first; then runs that only have trash."""


class KnownRuns(Struct, frozen=True):
    """All that a worker knows of the runs in its home."""

    report: RunSummary = RunSummary()
    restored: Mapping[str, float] = {}
    """What an undo gave back, and when."""
    ended: frozenset[str] = frozenset()
    """Sessions that may have an end which we wrote: a restored database has what we took back."""
    in_trash: frozenset[str] = frozenset()
    """Sessions whose rows are in the trash: one that exists was made again by Hermes."""
    kept_rows: tuple[KeptRows, ...] = ()
    """Sessions that were emptied, and whose rows wait for processes to end."""
    automatic_reaps: tuple[Reaps, ...] = ()
    reopenings: tuple[Reopening, ...] = ()
    readable: bool = True
    """False if there is a journal and it cannot be read: what it protects is not known then."""


class RunReader:
    """Reads the journal of one home when its file has changed."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._seen: _Seen = (None, None)
        self._memory = KnownRuns()

    def read(self, owner: int) -> KnownRuns:
        seen = self._look()
        if seen != self._seen or not self._memory.readable:
            self._memory = self._read(owner) if any(seen) else KnownRuns()
            self._seen = seen if all(map(_is_old_enough, seen)) else (None, None)
        return self._memory

    def _look(self) -> _Seen:
        """Return a value that changes with every write, and if the folder cannot be read."""
        folder = os.path.join(self._home, NAME)
        if os.path.islink(folder):
            return _UNREADABLE, None
        return _state_of(os.path.join(folder, FILE)), _state_of(os.path.join(folder, *PATH))

    def _read(self, owner: int) -> KnownRuns:
        try:
            # Before the journal: a run is noted in it before it has trash.
            with run_folder(self._home, owner) as folder:
                trashed = runs_in_trash(folder) if folder is not None else []
            with journal_of(self._home, owner) as runs:
                if runs is None:
                    return KnownRuns(RunSummary(unfinished=trashed[:_LAST_RUNS]))
                runs.refuse_damage()
                unfinished = [each.id for each in runs.unfinished_runs()]
                totals = runs.totals()
                return KnownRuns(
                    _valid(
                        RunSummary(
                            reaped=_bounded(totals.reaped),
                            reopened=_bounded(totals.mistakes),
                            reborn=totals.healed,
                            tripped=runs.tripped(),
                            pruned=[
                                PruneRunCount(RunOutcome(outcome), count, last)
                                for outcome, (count, last) in runs.count_runs(RunKind.PRUNE).items()
                            ],
                            deleted=[
                                DeletedByPolicy(
                                    cut(policy, 128), items, totals.freed_bytes.get(policy, 0)
                                )
                                for policy, items in totals.pruned.items()
                            ][:16],
                            last=runs.list_runs()[:_LAST_RUNS],
                            unfinished=[*unfinished, *runs.unlisted(trashed)][:_LAST_RUNS],
                        )
                    ),
                    msgspec.convert(runs.restored(), dict[str, float]),
                    runs.targets_ever(*ENDS),
                    in_trash=runs.targets_in_trash(DELETE_SESSION),
                    kept_rows=tuple(runs.kept_rows(DELETE_SESSION)),
                    automatic_reaps=tuple(runs.automatic_reaps()),
                    reopenings=tuple(Reopening(*each) for each in totals.reopenings.items()),
                )
        except (RunError, ValueError, TypeError, msgspec.MsgspecError) as error:
            why = cut(cause_of(error), 300) if isinstance(error, RunError) else ""
            return KnownRuns(RunSummary(readable=False, why=why), readable=False)


def _state_of(path: str) -> _State | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError:
        return _UNREADABLE
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _is_old_enough(seen: _State | None) -> bool:
    """False for a file that was just written: a second write in the same tick leaves no trace."""
    return seen is None or time.time_ns() - seen[2] > _TICK_NS


def _valid(report: RunSummary) -> RunSummary:
    """Raise if the agent would refuse it: the owner may write anything into the journal."""
    encoded = msgspec.json.encode(report)
    if len(encoded) > _REPORT_BYTES_MAX:
        raise ValueError("the summary of the runs is too long to send")
    return msgspec.json.decode(encoded, type=RunSummary)


def _bounded(tally: Mapping[tuple[str, str], int]) -> list[ReapCount]:
    most = sorted(tally.items(), key=lambda each: (-each[1], each[0]))[: 2 * _SOURCES_MAX]
    return [ReapCount(cut(source, 128), cut(proof, 128), count) for (source, proof), count in most]
