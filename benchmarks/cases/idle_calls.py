"""System calls and bytes read to scan an unchanged home: they follow its repos, not its files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import agent, homes, processes
from benchmarks.line import Line, Setting

_SECONDS = 20.0
_CALLS_EACH = 10
_BYTES_EACH = 256


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    parts = _repos(home) + homes.open_sessions(setting.scale)
    with agent.running(home, interval="1s") as watched:
        watched.wait_until_ready()
        watched.wait_for_scans(3)
        began, before = time.monotonic(), processes.bytes_read(watched.pid)
        watched.wait_for_scans(10)
        elapsed = time.monotonic() - began
        size = (processes.bytes_read(watched.pid) - before) / 10
        calls = processes.system_calls(watched.pid, _SECONDS) / _SECONDS * (elapsed / 10)
    note = f"{parts:,} repos and open sessions"
    yield Line("system calls per idle scan", calls, _CALLS_EACH * parts, note=note, unit="calls")
    yield Line("bytes read per idle scan", size, _BYTES_EACH * parts, note=note, unit="bytes")


def _repos(home: Path) -> int:
    projects = len(list((home / "checkpoints/store/projects").iterdir()))
    return projects + sum(1 for _ in (home / "checkpoints").glob("*/HERMES_WORKDIR"))
