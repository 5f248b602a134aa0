"""The run journal of a home: its runs, their actions, and the result of each action.

An action is recorded before it is taken and again when it is settled, each time durably. A killed
run leaves actions that are only intended; the next run looks at the home to find out which of them
were done. The journal does not know what the kinds of actions mean.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final

import apsw
import msgspec

from exporter.errors import HomeError
from exporter.runs.folder import (
    JournalDamagedError,
    JournalMendedError,
    RunError,
    RunFolder,
    run_folder,
    run_lock,
    unusable,
)
from exporter.runs.journal_file import FILE, VERSION, opened, prepare, transaction, version_of
from exporter.runs.journal_reader import STOPPED_BY_VOLUME, JournalReader
from exporter.runs.models import (
    UNREADABLE,
    WHY_MAX,
    ActionState,
    RecordedAction,
    RunKind,
    RunOutcome,
    Settled,
)
from exporter.runs.reserve import has_reserve, refill_reserve, release_reserve
from exporter.runs.salvage import is_damaged, salvage
from exporter.runs.trash import runs_in_trash
from exporter.runs.trim import trim_journal
from exporter.text import cut
from exporter.writing.idle_wal import empty_wal
from exporter.writing.target import Target

__all__ = [
    "FILE",
    "VERSION",
    "RunJournal",
    "journal_of",
    "journal_was_lost",
    "new_run_id",
    "running",
]


def refuse_other_kind(target: Target, run: str, kind: RunKind) -> None:
    """Raise RunError if the home has no such run, or if it is one of another kind."""
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is None:
            raise RunError(f"there is no run {run} in {target.home}")
        found = journal.find(run).kind
        if found is not kind:
            raise RunError(
                f"run {run} is no {kind.value} but one of kind {found.value}; nothing was done"
            )


@contextmanager
def running_on(target: Target, purpose: str) -> Iterator[RunJournal]:
    """Yield the journal of the home that is to be acted on, under its run lock.

    At the end trim it, and leave nothing in the WAL of a database that no process has open.
    """
    with running(target.home, target.owner, purpose, target.clock) as runs:
        target.watch.begin()
        try:
            yield runs
        finally:
            empty_wal(target)
        runs.trim(target)


@contextmanager
def running(
    home: str, owner: int, purpose: str, clock: Callable[[], float] = time.time
) -> Iterator[RunJournal]:
    """Yield the journal under the home's run lock; both are made if need be.

    Raise RunBusyError if another run is under way, RunError if the folder is not fit for use.
    """
    with run_folder(home, owner, create=True) as folder:
        if folder is None:
            raise RunError(f"{home} has no folder for runs; nothing was done")
        with run_lock(folder, purpose):
            had_journal = _had_journal(folder)
            release_reserve(folder)
            try:
                path = folder.file(FILE, create=True)
            except OSError as error:
                raise unusable(f"{folder.path}/{FILE}", error) from error
            try:
                with opened(path or "") as connection:
                    is_new = prepare(connection, path or "")
                    _mark(folder, _MARK)
                    runs = RunJournal(connection, clock, folder)
                    if is_new and had_journal:
                        runs.trip("the run journal was lost, and with it what it protected")
                    elif runs.has_forgotten_trip():
                        runs.trip("reaping had been stopped; an older run journal came back")
                    yield runs
            except JournalDamagedError as error:
                if not _mend(folder, clock):
                    raise
                raise JournalMendedError(
                    f"{error}; what can be read of it was kept: repeat the command"
                ) from error
            refill_reserve(folder)


def mend_journal(home: str, owner: int) -> bool:
    """Replace the journal by its readable part if it is damaged; True if it was.

    Call it without a connection to it.
    """
    with run_folder(home, owner) as folder:
        if folder is None or folder.file(FILE) is None:
            return False
        with run_lock(folder, "repair"):
            return _mend(folder, time.time)


def _mend(folder: RunFolder, clock: Callable[[], float]) -> bool:
    """Do that under the run lock; a newer or an unusable journal raises RunError."""
    path = folder.file(FILE) or ""
    try:
        with opened(path) as connection:  # it also takes back what a killed run had half written
            if not version_of(connection, path):
                return False
    except JournalDamagedError:
        pass
    return salvage(folder, clock)


_MARK: Final = "journal.made"
"""An empty file that stays when the journal is lost, and so tells a lost one from none yet."""

_TRIPPED: Final = "breaker.open"
"""An empty file while the breaker is open; a journal may be replaced by an older copy."""


def _had_journal(folder: RunFolder) -> bool:
    """True if a journal was made here; before there was a mark, the reserve was the sign."""
    try:
        os.stat(_MARK, dir_fd=folder.descriptor, follow_symlinks=False)
    except OSError:
        return has_reserve(folder)
    return True


def _mark(folder: RunFolder, name: str) -> None:
    try:
        folder.file(name, create=True)
    except OSError:
        pass  # no inode is free; the next run tries again


@contextmanager
def journal_of(
    home: str, owner: int, clock: Callable[[], float] = time.time
) -> Iterator[RunJournal | None]:
    """Yield the journal to read it, without the lock; None if this home has none."""
    with run_folder(home, owner) as folder:
        path = folder.file(FILE) if folder is not None else None
        if folder is None or path is None:
            yield None
            return
        with opened(path) as connection:
            # A run that was killed when it was about to begin has left an empty file.
            yield RunJournal(connection, clock, folder) if version_of(connection, path) else None


def journal_was_lost(home: str, owner: int) -> bool:
    """True if a journal was made in this home and there is none now, or an empty one."""
    with run_folder(home, owner) as folder:
        if folder is None or not _had_journal(folder):
            return False
    with journal_of(home, owner) as journal:
        return journal is None


class RunJournal(JournalReader):
    """An open journal; it is written under the run lock."""

    def __init__(
        self, connection: apsw.Connection, clock: Callable[[], float], folder: RunFolder
    ) -> None:
        super().__init__(connection)
        self.folder = folder
        """Where the journal and the trash are, open as long as the journal is."""
        self._clock = clock

    def begin(
        self,
        kind: RunKind,
        actions: Sequence[RecordedAction],
        *,
        run: str = "",
        plan: str = "",
        by_hand: bool = False,
        undoable_seconds: float | None = None,
    ) -> str:
        """Note a run and all that it is about to do; return its id.

        A run that acts on several homes has one id, given by `new_run_id`, in all their journals.
        """
        now = self._clock()
        run = run or self._free_id(now)
        until = None if undoable_seconds is None else now + undoable_seconds
        with transaction(self._connection):
            self._connection.execute(_BEGIN, (run, kind.value, plan, by_hand, now, until))
            self._connection.executemany(
                _INTEND, (_columns(run, number, each) for number, each in enumerate(actions))
            )
        return run

    def note_lost(
        self, run: str, actions: Sequence[RecordedAction], undoable_seconds: float
    ) -> None:
        """Note a prune that this journal does not have, as one that was killed.

        Its actions have their numbers; those that cannot be read are settled at once.
        """
        now = self._clock()
        until = now + undoable_seconds
        with transaction(self._connection):
            self._connection.execute(_BEGIN, (run, RunKind.PRUNE.value, "", False, now, until))
            self._connection.executemany(
                _INTEND, (_columns(run, each.number, each) for each in actions)
            )
            self._connection.execute(
                "UPDATE actions SET state = ?, why = ? WHERE run = ? AND action = ?",
                (ActionState.SKIPPED.value, "it stays in the trash", run, UNREADABLE),
            )

    def _free_id(self, now: float) -> str:
        """Return an id that no run of this home has."""
        while True:
            run = new_run_id(now)
            if not self._runs("runs.id = ?", run):
                return run

    def settle(self, run: str, settled: Sequence[Settled]) -> None:
        """Record the results of actions; an action that a done one reverses becomes undone."""
        if not settled:
            return
        now = self._clock()
        numbers = [each.number for each in settled]
        with transaction(self._connection):
            for first, last, each in _group_equal(settled):
                self._connection.execute(
                    "UPDATE actions SET state = ?, why = ?, settled_at = ? "
                    "WHERE run = ? AND number BETWEEN ? AND ?",
                    (each.state.value, each.why, now, run, first, last),
                )
            self._connection.execute(_TAKE_BACK, (f"by run {run}", run, min(numbers), max(numbers)))

    def reopen(self, run: str, numbers: Sequence[int]) -> None:
        """Note that it is not known any more if these actions were done, and what they reversed."""
        with transaction(self._connection):
            for each in numbers:
                self._connection.execute(_NOT_TAKEN_BACK, (f"by run {run}", run, each))
                self._connection.execute(
                    "UPDATE actions SET state = 'intended', why = '', settled_at = NULL "
                    "WHERE run = ? AND number = ?",
                    (run, each),
                )

    def finish(self, run: str, outcome: RunOutcome, why: str = "") -> None:
        """Close a run; nothing may be left intended. What it took can be undone from now on.

        A recovery may take what a run that was killed long ago had planned: counted from the start
        of that run, its time in the trash would be over at once.
        """
        now = self._clock()
        self._connection.execute(
            "UPDATE runs SET finished_at = ?, outcome = ?, why = ?, "
            "undoable_until = undoable_until + max(0, ? - started_at) WHERE id = ?",
            (now, outcome.value, cut(why, WHY_MAX), now, run),
        )

    def trim(self, target: Target) -> None:
        """Take out what is long past; what fails now is left to a later run."""
        try:
            trim_journal(self._connection, runs_in_trash(self.folder), target)
        except (HomeError, OSError, apsw.Error):
            pass

    def refuse_damage(self) -> None:
        """Raise JournalDamagedError if not all of it can be read; reads all of it."""
        if is_damaged(self._connection):
            raise JournalDamagedError("the run journal is damaged")

    def set_not_undoable(self, run: str) -> None:
        """Note that a run cannot be undone any more: its trash is gone."""
        self._connection.execute("UPDATE runs SET undoable_until = NULL WHERE id = ?", (run,))

    def trip(self, why: str) -> None:
        """Stop automatic runs until one is made by hand; the first reason stands."""
        self._connection.execute("DELETE FROM breaker WHERE why LIKE ?", (STOPPED_BY_VOLUME,))
        self._connection.execute(
            "INSERT INTO breaker SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM breaker)",
            (self._clock(), cut(why, WHY_MAX)),
        )
        _mark(self.folder, _TRIPPED)

    def has_forgotten_trip(self) -> bool:
        """True if the breaker is open and this journal, an older copy, does not know it."""
        return self.tripped() is None and self.folder.file(_TRIPPED) is not None

    def close_breaker(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(_TRIPPED, dir_fd=self.folder.descriptor)
        self._connection.execute("DELETE FROM breaker")

    def accept_unrecorded_reaps(self, end_reason: str) -> None:
        """Note that a person accepts sessions with our end reason that no journal lists."""
        self._connection.execute(
            "INSERT OR IGNORE INTO strangers VALUES (?, ?, ?)", (_ALL, end_reason, self._clock())
        )


_ALL: Final = "*"
_BEGIN: Final = """
    INSERT INTO runs (id, kind, plan, by_hand, started_at, undoable_until)
    VALUES (?, ?, ?, ?, ?, ?)"""
_INTEND: Final = """
    INSERT INTO actions (run, number, action, policy, target, reason, bytes, before, after,
                         evidence, reverses_run, reverses_number, state)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""

# Without the `+` SQLite would read every action that was ever done.
_TAKE_BACK: Final = """
    UPDATE actions SET state = 'undone', why = ?
     WHERE +state = 'done' AND (run, number) IN (
           SELECT reverses_run, reverses_number FROM actions
            WHERE run = ? AND number BETWEEN ? AND ? AND +state = 'done'
                  AND reverses_run IS NOT NULL)"""
_NOT_TAKEN_BACK: Final = """
    UPDATE actions SET state = 'done', why = ''
     WHERE +state = 'undone' AND why = ? AND (run, number) IN (
           SELECT reverses_run, reverses_number FROM actions
            WHERE run = ? AND number = ? AND reverses_run IS NOT NULL)"""


def new_run_id(now: float) -> str:
    moment = datetime.fromtimestamp(now, UTC)
    return f"{moment:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


def _group_equal(settled: Sequence[Settled]) -> Iterator[tuple[int, int, Settled]]:
    """Return runs of equal neighbours: first number, last number, and one of them."""

    def kind(pair: tuple[int, Settled]) -> tuple[ActionState, str, int]:
        place, each = pair
        return each.state, each.why, each.number - place

    for _, group in groupby(enumerate(settled), kind):
        alike = [each for _, each in group]
        yield alike[0].number, alike[-1].number, alike[0]


def _columns(run: str, number: int, recorded: RecordedAction) -> tuple[Any, ...]:
    action, reverses = recorded.action, recorded.reverses
    return (
        run,
        number,
        str(action.kind),
        action.policy,
        action.target,
        action.reason,
        action.bytes,
        _json(action.expected),
        _json(recorded.after),
        _json(action.evidence),
        reverses.run if reverses else None,
        reverses.number if reverses else None,
        ActionState.INTENDED.value,
    )


_ENCODER: Final = msgspec.json.Encoder()


def _json(value: Any) -> str:
    return _ENCODER.encode(value).decode()
