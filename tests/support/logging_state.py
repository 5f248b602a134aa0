"""Restore the logging setup after a test."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Restore the root logger at the end."""
    root, own = logging.getLogger(), logging.getLogger("exporter")
    handlers, level, own_level = root.handlers[:], root.level, own.level
    raising = logging.raiseExceptions
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        own.setLevel(own_level)
        logging.raiseExceptions = raising
        logging.captureWarnings(False)
