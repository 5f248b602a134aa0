"""What a command that scans by itself begins before the rest of the program is loaded.

A person at a terminal sees at once that it scans, and the process from which its workers are forked
loads beside it, on another core. `serve` loads what its workers need and nothing else, and forks
that process with it, so that all of them share this memory. It is a guess from the words of the
command line: if the command does not scan after all, the line is removed, and the process ends
unused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from exporter.config.paths import usual_sockets
from exporter.workers.early_server import LOAD_LITTLE, EarlyServer, start_early, start_loaded

_SCANS: Final = frozenset(
    ("status", "sessions", "explain", "history", "reap", "prune", "undo", "purge")
)
_OWN_FILES: Final = frozenset(("--config.file", "--state-dir"))
"""Options with which a command asks no agent that it was not told of."""
_NO_SCAN: Final = frozenset(("-h", "--help", "--watch"))
CLEAR_LINE: Final = b"\r\x1b[K"

_is_drawn = False
_server: EarlyServer | None = None


def begin(words: Sequence[str]) -> None:
    """Begin, if the command that these words call will scan by itself, or is the agent."""
    global _is_drawn, _server  # a process has one stderr, and one command
    if words[:1] == ["serve"] and _NO_SCAN.isdisjoint(words):
        _server = start_loaded()
    if not _will_scan(words):
        return
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        _is_drawn = True
        _write(CLEAR_LINE + b"scanning...")
    _server = start_early(LOAD_LITTLE)


def take_server() -> EarlyServer | None:
    """Return the process that was started, once; None if there is none."""
    global _server
    server, _server = _server, None
    return server


def take_line() -> None:
    """Leave the line to the caller, who draws it again and removes it."""
    global _is_drawn
    _is_drawn = False


def clear() -> None:
    """Remove the line, if it is still there."""
    global _is_drawn
    if _is_drawn:
        _is_drawn = False
        _write(CLEAR_LINE)


def _will_scan(words: Sequence[str]) -> bool:
    if not words or words[0] not in _SCANS:
        return False
    options = {word.partition("=")[0] for word in words}
    if not options.isdisjoint(_NO_SCAN):
        return False
    if "--no-agent" in options:
        return True
    if "--agent.socket" in options:
        return False
    return not options.isdisjoint(_OWN_FILES) or not any(map(os.path.exists, usual_sockets()))


def _write(line: bytes) -> None:
    with suppress(OSError):
        os.write(2, line)
