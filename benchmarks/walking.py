"""Our side of the disk benchmarks: scans as a worker makes them, every 15 s of its own clock."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from exporter.scan.disk.scanner import DiskScanner
from exporter.snapshot import DiskReport

_INTERVAL_SECONDS = 15.0
_ROUNDS_PER_FULL = 60
"""In this many scans everything is read again once, in parts, whatever the caches hold."""
_WITHOUT_PAUSE_SECONDS = 3600.0
"""A scan has no time limit: a walk that stops early would measure nothing."""


class Walker:
    """A scanner of one home whose clock advances 15 s from scan to scan."""

    def __init__(self, home: Path, processes: int = 2) -> None:
        self._scanner = DiskScanner(
            str(home),
            processes=processes,
            full_interval_seconds=_ROUNDS_PER_FULL * _INTERVAL_SECONDS,
            walk_seconds=_WITHOUT_PAUSE_SECONDS,
        )
        self._monotonic = 0.0

    def scan(self) -> DiskReport:
        self._monotonic += _INTERVAL_SECONDS
        report = self._scanner.scan(
            excluded_profiles=frozenset(), now=time.time(), monotonic=self._monotonic
        )
        if not report.complete:
            raise RuntimeError("the scan did not see everything")
        return report


def first_scan(home: Path, processes: int = 2) -> Walker:
    """Read everything once."""
    walker = Walker(home, processes)
    walker.scan()
    return walker


def refuse_wrong_figures(home: Path) -> None:
    """Raise unless our figures equal `du -s` of the same home: wrong figures need no benchmark."""
    report = Walker(home).scan()
    ours = sum(usage.allocated_bytes for usage in report.usage.values())
    said = subprocess.check_output(["du", "-s", "--block-size=1", str(home)], text=True)
    if ours != int(said.split()[0]):
        raise RuntimeError(f"the scan finds {ours} bytes, du -s {said.split()[0]}")


class Changes:
    """Writes to a home as Hermes does between two scans: to one repo and 20 transcripts."""

    def __init__(self, home: Path) -> None:
        self._repos = sorted(home.glob("checkpoints/*/HERMES_WORKDIR"))
        self._transcripts = sorted(home.glob("sessions/session_*.json"))[:20]
        self._made = 0

    def make(self) -> None:
        """Add an object to one repo and, as git does, a new index; then lines of text."""
        repo = self._repos[self._made % len(self._repos)].parent
        folder = repo / "objects" / f"{time.time_ns() & 0xFF:02x}"
        folder.mkdir(exist_ok=True)
        (folder / f"{time.time_ns():038x}").write_bytes(b"x" * 500)
        (repo / "index.lock").write_bytes((repo / "index").read_bytes())
        os.replace(repo / "index.lock", repo / "index")
        for path in self._transcripts:
            with path.open("a") as transcript:
                transcript.write(" " * 80)
        self._made += 1
