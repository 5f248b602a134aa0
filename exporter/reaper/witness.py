"""Seeing which interactive CLI writes which session.

A CLI names its session nowhere, but a session that gains messages was written by some process that
had the database open and that wrote something just then. When exactly one such process was there
that could have been on the session, it is; seen twice, that is taken for certain. It stays so while
the row stays open, because a CLI ends its row when it leaves it.

A one-shot that came and went between two scans is never seen, so it is not enough that a CLI was
the only one there: it must have written as much as a message takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from exporter.evidence.findings import Holder
from exporter.hermes.processes import ProcessKind
from exporter.reaper.hosts import ProcessKey, could_host, key_of, runs_aside
from exporter.snapshot import OpenSession

SIGHTINGS_NEEDED: Final = 2
_MESSAGE_BYTES: Final = 16 * 1024
"""Every release writes at least three times as much into the log for one message."""
_TYPING_BYTES_PER_SECOND: Final = 512
"""What a fast typist makes a CLI write to its terminal, a screenful of escapes for each key."""
_COMMIT_BYTES: Final = 512
"""The smallest page of SQLite: whoever wrote less has committed nothing."""


class _Scan(NamedTuple):
    at: float
    rows: dict[str, int]
    holders: dict[ProcessKey, Holder]


class Witness:
    """What was seen so far; forgets processes that have ended and sessions that were closed."""

    def __init__(self) -> None:
        self._earlier: list[_Scan] = []
        self._sightings: dict[tuple[ProcessKey, str], int] = {}
        self._left: set[tuple[ProcessKey, str]] = set()

    def observe(
        self,
        sessions: Mapping[str, OpenSession],
        holders: tuple[Holder, ...],
        complete: bool,
        now: float = 0.0,
    ) -> None:
        """Take in one scan. While not everybody can be seen, nothing is witnessed."""
        present = {key_of(holder): holder for holder in holders}
        self._sightings = {
            (process, session_id): count
            for (process, session_id), count in self._sightings.items()
            if process in present and session_id in sessions
        }
        self._note_departures(sessions, present)
        if not complete:
            self._earlier = []
            return
        scan = _Scan(now, {session.id: session.rows for session in sessions.values()}, present)
        self._earlier = [*self._earlier[-2:], scan]
        if len(self._earlier) == 3:
            self._credit_growth(sessions, *self._earlier)

    def _note_departures(
        self, sessions: Mapping[str, OpenSession], present: Mapping[ProcessKey, Holder]
    ) -> None:
        """A CLI that names a session which is not open has moved on; it may be opened by others."""
        self._left = {pair for pair in self._left if pair[0] in present}
        for process, holder in present.items():
            names = (mapped.id for mapped in holder.sessions)
            self._left.update((process, name) for name in names if name not in sessions)

    def _credit_growth(
        self, sessions: Mapping[str, OpenSession], before: _Scan, then: _Scan, now: _Scan
    ) -> None:
        """Credit whoever made the sessions grow that had grown at the scan before this one.

        Processes are looked at before the database is read: what was read then may have been
        written after that look, and shows in the counters only now.
        """
        grown = [
            sessions[session_id]
            for session_id, rows in then.rows.items()
            if rows > before.rows.get(session_id, rows) and session_id in sessions
        ]
        if not grown:
            return
        accounted = {process: frozenset({known}) for process, known in self.account().items()}
        everybody = {**before.holders, **then.holders, **now.holders}
        busy = {
            process: holder
            for process, holder in everybody.items()
            if _written(process, before, now, unknown=_COMMIT_BYTES) >= _COMMIT_BYTES
        }
        writers = {
            session.id: {
                process
                for process, holder in busy.items()
                if could_host(holder, session, accounted)
            }
            for session in grown
        }
        for session in grown:
            others = (found for other, found in writers.items() if other != session.id)
            elsewhere = set().union(*others)
            self._credit(session, writers[session.id], elsewhere, (before, then, now))

    def _credit(
        self,
        session: OpenSession,
        writers: set[ProcessKey],
        elsewhere: set[ProcessKey],
        scans: tuple[_Scan, _Scan, _Scan],
    ) -> None:
        if len(writers) != 1 or writers & elsewhere or runs_aside(session):
            return
        (writer,) = writers
        if not all(writer in scan.holders for scan in scans):
            return
        if scans[-1].holders[writer].kind is not ProcessKind.CLI:
            return
        if _written(writer, scans[0], scans[-1], unknown=0) < _needed(scans[0], scans[-1]):
            return
        sighting = (writer, session.id)
        self._sightings[sighting] = self._sightings.get(sighting, 0) + 1

    def account(self) -> dict[ProcessKey, str]:
        """Processes known to be on a session: seen on it often enough, and on no other."""
        certain: dict[ProcessKey, set[str]] = {}
        for (process, session_id), count in self._sightings.items():
            if count >= SIGHTINGS_NEEDED:
                certain.setdefault(process, set()).add(session_id)
        return {process: next(iter(ids)) for process, ids in certain.items() if len(ids) == 1}

    def has_left(self, process: ProcessKey, session_id: str) -> bool:
        """Whether it was seen to name this session while that was closed."""
        return (process, session_id) in self._left


def _needed(before: _Scan, now: _Scan) -> float:
    """How much it must have written to have written a message, whatever was typed meanwhile."""
    return _MESSAGE_BYTES + _TYPING_BYTES_PER_SECOND * abs(now.at - before.at)


def _written(process: ProcessKey, before: _Scan, now: _Scan, *, unknown: int) -> int:
    """How much it wrote from one scan to the other; `unknown` where that cannot be told."""
    first, last = before.holders.get(process), now.holders.get(process)
    if first is None or last is None or first.written is None or last.written is None:
        return unknown
    return last.written - first.written
