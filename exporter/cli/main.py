"""`hermes-exporter`: begin what takes long, then load the program and run the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from exporter.cli import head_start

if TYPE_CHECKING:
    from exporter.cli.commands import Command


def main(words: Sequence[str] | None = None, load: Callable[[str], Command] | None = None) -> int:
    """Run a command line and return its exit status."""
    if words is None:
        head_start.begin(sys.argv[1:])
    try:
        from exporter.cli import command_line, commands  # only now: it takes a while

        given = sys.argv[1:] if words is None else list(words)
        return command_line.run(given, load or commands.load)
    finally:
        head_start.clear()
