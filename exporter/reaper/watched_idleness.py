"""How long the agent itself has watched each open session idle.

A presumption uses this alone: no timestamp that Hermes wrote, and no step of the wall clock, can
make a session look idle.

- Time is CLOCK_MONOTONIC, which stops while the host sleeps, minus the time in which a process that
  has the database open was stopped or frozen.
- A session counts as changed at the scan that first saw its current state. At the first scan of a
  boot every session counts as changed.
- From time to time the agent stores what was watched. It gives this to the next worker, and to the
  runs that commands ask for. A session that changed in between no longer matches and counts as
  changed; a process that wrote in between no longer counts as silent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Mapping
from hashlib import blake2b
from math import inf
from typing import Final

from msgspec import Struct

from exporter.evidence.liveness import BootTime, read_boot_time
from exporter.evidence.models import Holder, ProcessKey
from exporter.reaper.models import Conclusion
from exporter.reaper.possible_hosts import UNSEEN, FirstSeen
from exporter.snapshot import OpenSession

SESSIONS_MAX: Final = 15_000
"""Sessions kept for the next worker, longest idle first; the others then count as changed."""
_WRITERS_MAX: Final = 1_000
_HEADER: Final = struct.Struct("<4s16sdd?qI")
_WRITER: Final = struct.Struct("<QQQq")
_ENTRY: Final = struct.Struct("<Qqddq")
_FORMAT: Final = b"HEW3"
_NO_FINGERPRINT: Final = -1
"""Python's hash never has this value."""


class SessionHistory(Struct, gc=False):
    """All that is remembered of one open session: there may be tens of thousands."""

    fingerprint: int = _NO_FINGERPRINT
    since: float = inf
    """By the time of `WatchedIdleness`: when the session was first seen in this state."""
    presence: FirstSeen = UNSEEN
    conclusion: Conclusion | None = None
    """Of the last scan that judged it; None: it was not judged yet."""
    dead_in_a_row: int = 0
    """Scans that found it dead, without another in between."""


class WatchedIdleness:
    """What was seen of the open sessions of one home, scan after scan."""

    def __init__(self, now: Callable[[], BootTime] = read_boot_time) -> None:
        self._read_moment = now
        self.sessions: dict[str, SessionHistory] = {}
        self._earlier: dict[int, SessionHistory] = {}
        """What an earlier worker had watched, by the hash of the session id."""
        self._writers: dict[ProcessKey, tuple[int, int]] = {}
        """What each process had written, and the first scan that saw this value."""
        self._scan = -1
        self._moment = BootTime("", 0.0, 0.0)
        self._scanned_at: float | None = None
        """CLOCK_MONOTONIC at the last scan of this boot, also by an earlier worker."""
        self._wall: float | None = None
        """The wall clock at the last scan of this worker."""
        self._paused_seconds = 0.0
        self._stopped = False
        self._kept_as_stopped = False
        self.changed = False
        """True if `dump` would return something new."""

    def observe(
        self,
        sessions: Mapping[str, OpenSession],
        holders: tuple[Holder, ...],
        *,
        now: float,
        reopened: Container[str] = (),
        grown: Iterable[str] = (),
        begun_anew: bool = False,
    ) -> None:
        """Add one scan. The processes were surveyed before the sessions were read.

        `now` is the wall clock. `reopened` are sessions that were ended at an earlier scan. `grown`
        are sessions with a changed child. `begun_anew`: it is unknown which sessions existed at the
        scan before this one.
        """
        self._scan += 1
        self._advance(self._read_moment(), any(_is_paused(each) for each in holders))
        self._update_writers(holders)
        old = FirstSeen(self._moment.since_boot)
        new = old._replace(absent_scan=self._scan - 1)
        last_scan, self._wall = None if begun_anew else self._wall, now
        moved = _with_ancestors(grown, sessions)
        time_now = self._time()
        for session_id in self.sessions.keys() - sessions.keys():
            del self.sessions[session_id]
            self.changed = True
        for session_id, session in sessions.items():
            known = self.sessions.get(session_id)
            if known is None:
                # A session that began before the last scan, and was not there, may have been away
                # with its whole database. Then a chat that has been silent since may still run it.
                began_since = last_scan is not None and session.started_at >= last_scan
                is_new = began_since and session_id not in reopened
                unseen = SessionHistory(presence=new if is_new else old)
                known = self._earlier.pop(_key(session_id), unseen) if self._earlier else unseen
                self.sessions[session_id] = known
            mark = _fingerprint(session)
            if known.fingerprint != mark or session_id in moved:
                known.fingerprint, known.since = mark, time_now
                self.changed = True
        self._earlier = {}

    def _advance(self, moment: BootTime, stopped: bool) -> None:
        """Advance the time, except by an interval at whose start or end a process was stopped."""
        if self._scanned_at is not None and (stopped or self._stopped):
            self._paused_seconds += max(0.0, moment.monotonic - self._scanned_at)
            self.changed = True
        self._moment, self._scanned_at, self._stopped = moment, moment.monotonic, stopped

    def _time(self) -> float:
        return self._moment.monotonic - self._paused_seconds

    def _update_writers(self, holders: tuple[Holder, ...]) -> None:
        writers: dict[ProcessKey, tuple[int, int]] = {}
        for holder in holders:
            if holder.written is not None:
                written, since = self._writers.get(holder.key, (None, self._scan))
                since = since if written == holder.written else self._scan
                writers[holder.key] = (holder.written, since)
        self._writers = writers

    # For the verdicts

    def record(self, session_id: str) -> SessionHistory:
        return self.sessions.get(session_id) or SessionHistory()

    def idle_seconds(self, session_id: str) -> float:
        """Return how long this session was watched idle."""
        return max(0.0, self._time() - self.record(session_id).since)

    def presence(self, session_id: str) -> FirstSeen:
        return self.record(session_id).presence

    def silent_since(self) -> dict[ProcessKey, int]:
        """Return for each process the first scan since which it has written nothing."""
        return {process: scan for process, (_, scan) in self._writers.items()}

    # For the next worker

    @property
    def must_be_kept_now(self) -> bool:
        """True if a process is stopped, and the next worker would not know it.

        It would count all the time until its first scan as idle, if the process goes on before.
        """
        return self._stopped and not self._kept_as_stopped

    def dump(self) -> bytes:
        """Return everything worth keeping, in the format of `load`."""
        self.changed, self._kept_as_stopped = False, self._stopped
        boot = _boot(self._moment.boot_id)
        if boot is None:
            return b""
        kept = sorted(self.sessions.items(), key=lambda item: item[1].since)[:SESSIONS_MAX]
        entries = (
            _ENTRY.pack(_key(session_id), each.fingerprint, each.since, *each.presence)
            for session_id, each in kept
        )
        writers = list(self._writers.items())[:_WRITERS_MAX]
        header = _HEADER.pack(
            _FORMAT,
            boot,
            self._paused_seconds,
            self._moment.monotonic,
            self._stopped,
            self._scan,
            len(writers),
        )
        silent = (_WRITER.pack(*process, *written) for process, written in writers)
        return header + b"".join(silent) + b"".join(entries)

    def load(self, data: bytes) -> None:
        """Continue from what an earlier worker watched; invalid data is ignored.

        From an earlier boot only one fact is used: a session was seen before this boot, and so
        before every process of this boot.
        """
        if not data.startswith(_FORMAT) or len(data) < _HEADER.size:
            return
        _, boot, paused, last_scan_at, stopped, scan, writers = _HEADER.unpack_from(data)
        sessions_at = _HEADER.size + writers * _WRITER.size
        size = len(data) - sessions_at
        if size < 0 or size % _ENTRY.size:
            return
        same_boot = boot == _boot(self._read_moment().boot_id)
        if same_boot:
            self._paused_seconds, self._scanned_at = paused, last_scan_at
            self._stopped = self._kept_as_stopped = stopped
            self._scan = scan
            for pid, ticks, written, since in _WRITER.iter_unpack(data[_HEADER.size : sessions_at]):
                self._writers[pid, ticks] = (written, since)
        for key, mark, since, seen_at, absent in _ENTRY.iter_unpack(data[sessions_at:]):
            self._earlier[key] = (
                SessionHistory(mark, since, FirstSeen(seen_at, absent))
                if same_boot
                else SessionHistory(presence=FirstSeen(0.0))
            )


def _with_ancestors(session_ids: Iterable[str], sessions: Mapping[str, OpenSession]) -> set[str]:
    """Return these sessions and their ancestors: a parent is silent while its children work."""
    found: set[str] = set()
    for session_id in session_ids:
        current: str | None = session_id
        while current is not None and current in sessions and current not in found:
            found.add(current)
            current = sessions[current].parent_id
    return found


def _is_paused(holder: Holder) -> bool:
    return holder.stopped and not holder.ours and not holder.outsider


def _fingerprint(session: OpenSession) -> int:
    """Return a value that changes with every message and is the same in every process.

    Only numbers are hashed: their hash does not depend on the process.
    """
    return hash((session.rows, session.messages, session.last_activity_at))


def _key(session_id: str) -> int:
    digest = blake2b(session_id.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _boot(boot_id: str) -> bytes | None:
    """Return the boot id as bytes; the kernel writes it as a UUID. None if it is not one."""
    try:
        raw = bytes.fromhex(boot_id.replace("-", ""))
    except ValueError:
        return None
    return raw if len(raw) == 16 else None
