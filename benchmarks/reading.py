"""Our side of the database benchmarks: polls as a worker makes them."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from exporter.scan.database import StateReader


def first_pass(home: Path) -> StateReader:
    """Read everything once.

    Its clock stands still: a whole pass that falls due would hide what a poll costs.
    """
    reader = StateReader(str(home), monotonic=lambda: 0.0)
    poll(reader)
    return reader


IDLE_POLLS = 1_000
"""One takes so little that whoever else runs on the machine would be all that few of them show."""


def poll(reader: StateReader) -> int:
    """Bring the reader up to date; how many sessions it gave out as changed."""
    changed = deque(reader.update(reader.watermark, lambda: None))
    return len(changed)
