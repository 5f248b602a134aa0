"""Memory of the agent with its workers, beside query-exporter on the same database."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks import agent, homes, peers, processes
from benchmarks.line import Line, Setting

_SCANS = 5
_PEER_SECONDS = 8.0
_LIMIT_MEBIBYTES = {1.0: 72.0, 10.0: 96.0}
"""By scale; between and below these, the limit of the next larger scale applies."""


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    ours = measure(setting.scale)
    with peers.query_exporter(home / homes.Part.DATABASE) as pid:
        time.sleep(_PEER_SECONDS)
        theirs = processes.pss_mebibytes(pid)
    limit = min(limit for scale, limit in _LIMIT_MEBIBYTES.items() if scale >= setting.scale)
    yield Line(
        "memory of agent and workers",
        achieved=ours,
        limit=limit,
        peer="query-exporter",
        unit="MiB",
        note=f"PSS; query-exporter has {theirs:.0f} MiB, it knows the database alone",
    )


def measure(scale: float) -> float:
    """Return the PSS of the agent in MiB, at rest after some scans."""
    with agent.running(homes.home(scale), interval="1s", python=peers.ours()) as ours:
        ours.wait_until_ready()
        ours.wait_for_scans(_SCANS)
        ours.scan_every("1h")  # no walk and no plan is under way then
        return processes.pss_mebibytes(ours.pid)
