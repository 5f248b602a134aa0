"""Lets Hermes write rows of another time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

MINUTE = 60.0
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_real_time = time.time


@contextmanager
def ago(seconds: float) -> Iterator[None]:
    """Within, `time.time()` says that it is `seconds` earlier, to Hermes as to everyone."""
    time.time = lambda: _real_time() - seconds
    try:
        yield
    finally:
        time.time = _real_time
