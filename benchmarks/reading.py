"""Our side of the database benchmarks: polls as a worker makes them."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from exporter.scan.database import StateReader


def first_pass(home: Path) -> StateReader:
    """Read everything once.

    Its clock does not move: a whole pass that falls due would hide the cost of a poll.
    """
    reader = StateReader(str(home), monotonic=lambda: 0.0)
    poll(reader)
    return reader


IDLE_POLLS = 1_000
"""One poll is so short that a few would only measure the other load of the machine."""


def poll(reader: StateReader) -> int:
    """Update the reader; return how many sessions it reported as changed."""
    changed = deque(reader.update(reader.watermark, lambda: None))
    return len(changed)
