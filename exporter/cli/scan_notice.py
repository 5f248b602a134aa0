"""A line on the terminal while a command waits for a scan, so that the screen is not empty.

It is on stderr, is drawn at once, and is gone before anything else is printed there.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from exporter.cli import head_start, output
from exporter.cli.head_start import CLEAR_LINE

_AGAIN_SECONDS: Final = 0.5


class _Notice:
    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._gone = threading.Event()
        self._draw()
        threading.Thread(target=self._go_on, name="notice", daemon=True).start()

    def _draw(self) -> None:
        seconds = int(time.monotonic() - self._began)
        age = f" {seconds} s" if seconds else ""
        _write(CLEAR_LINE + f"scanning...{age}".encode())

    def _go_on(self) -> None:
        while not self._gone.wait(_AGAIN_SECONDS):
            with self._lock:
                if not self._gone.is_set():
                    self._draw()

    def clear(self) -> None:
        with self._lock:
            if not self._gone.is_set():
                self._gone.set()
                _write(CLEAR_LINE)


_shown: _Notice | None = None


@contextmanager
def scanning() -> Iterator[None]:
    """Show on a terminal that a scan goes on, until it has ended or something is printed."""
    global _shown  # a process has one stderr
    if _shown is not None or sys.stderr is None or not output.is_terminal(sys.stderr, os.environ):
        yield
        return
    head_start.take_line()
    _shown = _Notice()
    output.before_errors = clear
    try:
        yield
    finally:
        clear()
        _shown = None


def clear() -> None:
    """Remove the line: something else is to be seen now."""
    if _shown is not None:
        _shown.clear()


def _write(line: bytes) -> None:
    with suppress(OSError):
        os.write(2, line)  # not by print: a signal may have come in the middle of one
