"""How long the agent itself has watched each open session idle.

A presumption uses this alone: no timestamp that Hermes wrote, and no step of the wall clock, can
make a session look idle.

- Time is CLOCK_MONOTONIC, which stops while the host sleeps, minus the time in which a process that
  has the database open was stopped or frozen.
- A session counts as changed at the scan that first saw its current state. At the first scan of a
  boot every session counts as changed.
- The agent stores what was watched from time to time and gives it to the next worker, and to what
  commands ask it to do. A session that changed in between no longer matches and counts as changed;
  a process that wrote in between no longer counts as silent.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Container, Iterable, Mapping
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from exporter.evidence.liveness import read_boot_id
from exporter.evidence.models import Holder
from exporter.reaper.possible_hosts import UNSEEN, FirstSeen, ProcessKey, process_key
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


class BootTime(Struct, frozen=True):
    """The clocks that no user can set, read together."""

    boot_id: str
    """Empty if the system has none: then nothing is kept for the next worker."""
    monotonic: float
    since_boot: float


def read_boot_time() -> BootTime:
    boot_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return BootTime(read_boot_id() or "", time.monotonic(), time.clock_gettime(boot_clock))


class _Watched(Struct, frozen=True, gc=False):
    fingerprint: int
    since: float
    """By this object's own time: when the session was first seen in this state."""
    presence: FirstSeen


class WatchedIdleness:
    """What was seen of the open sessions of one home, scan after scan."""

    def __init__(self, now: Callable[[], BootTime] = read_boot_time) -> None:
        self._read_moment = now
        self._sessions: dict[str, _Watched] = {}
        self._earlier: dict[int, _Watched] = {}
        """What an earlier worker had watched, by the hash of the session id."""
        self._writers: dict[ProcessKey, tuple[int, int]] = {}
        """What each process had written, and the first scan that saw this value."""
        self._scan = -1
        self._last: BootTime | None = None
        self._loaded_at: float | None = None
        """When an earlier worker of this boot made its last scan."""
        self._wall = 0.0
        """The wall clock at the last scan."""
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
        begun_anew = begun_anew or self._last is None
        self._advance(self._read_moment(), any(_is_paused(each) for each in holders))
        self._update_writers(holders)
        old = FirstSeen(self._moment.since_boot)
        new = old if begun_anew else old._replace(absent_scan=self._scan - 1)
        began_before, self._wall = self._wall, now
        moved = _with_ancestors(grown, sessions)
        time_now = self._time()
        for session_id in self._sessions.keys() - sessions.keys():
            del self._sessions[session_id]
            self.changed = True
        for session_id, session in sessions.items():
            known = self._sessions.get(session_id)
            if known is None:
                # A session older than the last scan may have been absent together with its
                # database: then a silent chat may well run it.
                is_new = session_id not in reopened and session.started_at >= began_before
                unseen = _Watched(_NO_FINGERPRINT, 0.0, new if is_new else old)
                known = self._earlier.get(_key(session_id), unseen) if self._earlier else unseen
            mark = _fingerprint(session)
            if known.fingerprint != mark or session_id in moved:
                known = _Watched(mark, time_now, known.presence)
                self.changed = True
            self._sessions[session_id] = known
        self._earlier = {}

    @property
    def _moment(self) -> BootTime:
        return self._last if self._last is not None else BootTime("", 0.0, 0.0)

    def _advance(self, moment: BootTime, stopped: bool) -> None:
        """Advance the time. An interval does not count if a process was stopped at either end of
        it.
        """
        before = self._last.monotonic if self._last is not None else self._loaded_at
        if before is not None and (stopped or self._stopped):
            self._paused_seconds += max(0.0, moment.monotonic - before)
            self.changed = True
        self._last, self._stopped = moment, stopped

    def _time(self) -> float:
        return self._moment.monotonic - self._paused_seconds

    def _update_writers(self, holders: tuple[Holder, ...]) -> None:
        writers: dict[ProcessKey, tuple[int, int]] = {}
        for holder in holders:
            if holder.written is not None:
                written, since = self._writers.get(process_key(holder), (None, self._scan))
                since = since if written == holder.written else self._scan
                writers[process_key(holder)] = (holder.written, since)
        self._writers = writers

    # For the verdicts

    def idle_seconds(self, session_id: str) -> float:
        """Return how long this session was watched idle."""
        known = self._sessions.get(session_id)
        return 0.0 if known is None else max(0.0, self._time() - known.since)

    def presence(self, session_id: str) -> FirstSeen:
        known = self._sessions.get(session_id)
        return UNSEEN if known is None else known.presence

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
        kept = sorted(self._sessions.items(), key=lambda item: item[1].since)[:SESSIONS_MAX]
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
            self._paused_seconds, self._loaded_at = paused, last_scan_at
            self._stopped = self._kept_as_stopped = stopped
            self._scan = scan
            for pid, ticks, written, since in _WRITER.iter_unpack(data[_HEADER.size : sessions_at]):
                self._writers[pid, ticks] = (written, since)
        for key, mark, since, seen_at, absent in _ENTRY.iter_unpack(data[sessions_at:]):
            self._earlier[key] = (
                _Watched(mark, since, FirstSeen(seen_at, absent))
                if same_boot
                else _Watched(_NO_FINGERPRINT, 0.0, FirstSeen(0.0))
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
