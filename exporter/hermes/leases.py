"""runtime/active_sessions.json: the sessions that Hermes's surfaces say they have open.

The file exists only if `max_concurrent_sessions` is set. A lease names the PID and start time of
its process, so it is the best evidence available. A missing lease proves nothing.
"""

from __future__ import annotations

import os
from typing import Any, Final

from exporter.errors import HomeError
from exporter.hermes.small_files import read_json
from exporter.snapshot import Lease

_LEASES_MAX: Final = 512


def read_leases(home: str) -> list[Lease] | None:
    """Return the leases; None if the file exists but cannot be understood."""
    try:
        document = read_json(os.path.join(home, "runtime", "active_sessions.json"))
    except HomeError:
        return None
    if document is None:
        return []
    entries = document.get("entries") if isinstance(document, dict) else document
    if not isinstance(entries, list) or len(entries) > _LEASES_MAX:
        return None
    leases = [_lease(entry) for entry in entries]
    return None if None in leases else [lease for lease in leases if lease is not None]


def _lease(entry: Any) -> Lease | None:
    if not isinstance(entry, dict):
        return None
    session_id, pid = entry.get("session_id"), entry.get("pid")
    started = entry.get("process_start_time")
    if not isinstance(session_id, str) or not isinstance(pid, int) or isinstance(pid, bool):
        return None
    return Lease(
        session_id=session_id[:512],
        surface=str(entry.get("surface", ""))[:64],
        pid=pid,
        process_started_at=_moment(started),
    )


def _moment(value: Any) -> float | None:
    """Return a plausible time as a float, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e11:
        return None
    return float(value)
