"""Seeing which interactive CLI writes which session.

A CLI names its session nowhere, but when a session gains messages while exactly one process was
there that could have written them, that process is on that session; seen twice, it is taken for
certain. It stays on it while the row stays open, because a CLI ends its row when it leaves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from exporter.evidence.findings import Holder
from exporter.hermes.processes import ProcessKind
from exporter.reaper.hosts import ProcessKey, could_host, key_of
from exporter.snapshot import OpenSession

SIGHTINGS_NEEDED: Final = 2


class Witness:
    """What was seen so far; forgets processes that have ended and sessions that were closed."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._present: frozenset[ProcessKey] = frozenset()
        self._sightings: dict[tuple[ProcessKey, str], int] = {}

    def observe(
        self, sessions: Mapping[str, OpenSession], holders: tuple[Holder, ...], complete: bool
    ) -> None:
        """Take in one scan. While not everybody can be seen, nothing is witnessed."""
        present = frozenset(key_of(holder) for holder in holders)
        if complete:
            throughout = [holder for holder in holders if key_of(holder) in self._present]
            for session_id in self._grown(sessions):
                self._credit(sessions[session_id], holders, throughout)
        self._rows = {session_id: session.rows for session_id, session in sessions.items()}
        self._present = present if complete else frozenset()
        self._sightings = {
            (process, session_id): count
            for (process, session_id), count in self._sightings.items()
            if process in present and session_id in sessions
        }

    def _grown(self, sessions: Mapping[str, OpenSession]) -> list[str]:
        return [
            session_id
            for session_id, session in sessions.items()
            if session.rows > self._rows.get(session_id, session.rows)
        ]

    def _credit(
        self, session: OpenSession, holders: Iterable[Holder], throughout: Iterable[Holder]
    ) -> None:
        writers = {key_of(holder) for holder in holders if could_host(holder, session, {})}
        seen_before = {key_of(holder) for holder in throughout if holder.kind is ProcessKind.CLI}
        if len(writers) != 1 or not writers <= seen_before:
            return
        (writer,) = writers
        sighting = (writer, session.id)
        self._sightings[sighting] = self._sightings.get(sighting, 0) + 1

    def account(self) -> dict[ProcessKey, str]:
        """Processes known to be on a session: seen on it often enough, and on no other."""
        certain: dict[ProcessKey, set[str]] = {}
        for (process, session_id), count in self._sightings.items():
            if count >= SIGHTINGS_NEEDED:
                certain.setdefault(process, set()).add(session_id)
        return {process: next(iter(ids)) for process, ids in certain.items() if len(ids) == 1}
