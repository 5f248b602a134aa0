"""The size of a home's WAL, also while something is done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def wal_watched(home: Path) -> Iterator[list[int]]:
    """The largest size of the WAL meanwhile, looked at every 20 ms."""
    largest, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            largest[0] = max(largest[0], wal_size(home))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield largest
    finally:
        stop.set()
        thread.join()
        largest[0] = max(largest[0], wal_size(home))


def wal_size(home: Path) -> int:
    try:
        return (home / "state.db-wal").stat().st_size
    except FileNotFoundError:
        return 0
