"""The files that a gateway writes about itself.

None of them proves that a gateway runs: gateway_state.json says "running" long after a SIGTERM, and
PIDs are reused. The caller checks it by the PID with its start time, and by the lock file.
"""

from __future__ import annotations

import os
from typing import Any, Final

from exporter.errors import HomeError
from exporter.hermes.small_files import file_identity, read_json, read_small
from exporter.snapshot import GatewayFiles

_RECORD_BYTES: Final = 256 * 1024
_STARTS_MAX: Final = 64


def read_gateway(home: str) -> GatewayFiles | None:
    """Return the gateway's records; None if this home never had a gateway."""
    record = _record(os.path.join(home, "gateway.pid"))
    state = _record(os.path.join(home, "gateway_state.json"))
    lock = file_identity(os.path.join(home, "gateway.lock"))
    starts = _starts(os.path.join(home, "gateway-starts.log"))
    if record is None and state is None and lock is None and not starts:
        return None
    chosen = record or state or {}
    pid, ticks = chosen.get("pid"), chosen.get("start_time")
    return GatewayFiles(
        pid=pid if isinstance(pid, int) and 0 < pid < 2**31 else None,
        start_ticks=ticks if isinstance(ticks, int) and 0 <= ticks < 2**62 else None,
        lock=lock,
        starts=starts,
    )


def _record(path: str) -> dict[str, Any] | None:
    """Return a JSON object; an empty dict if the file exists but cannot be read."""
    try:
        found = read_json(path, _RECORD_BYTES)
    except HomeError:
        return {}
    if found is None:
        return None
    return found if isinstance(found, dict) else {}


def _starts(path: str) -> list[float]:
    try:
        content = read_small(path, _RECORD_BYTES) or b""
    except HomeError:
        return []
    moments: list[float] = []
    for line in content.split(b"\n")[-_STARTS_MAX - 1 :]:
        try:
            moment = float(line)
        except ValueError:
            continue
        if 0 < moment < 1e11:
            moments.append(moment)
    return moments[-_STARTS_MAX:]
