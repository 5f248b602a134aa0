"""The commands: one module each, imported only when it is chosen.

A command's module holds what `--help` shows, `add_arguments` for its own options (all commands get
the common ones) and `run`, which returns the exit status. To add a command, write the module and
put its name here.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import Protocol, cast

NAMES = (
    "serve",
    "status",
    "sessions",
    "explain",
    "reap",
    "prune",
    "history",
    "undo",
    "purge",
    "textfile",
    "check",
    "files",
    "demo",
)
"""In the order of the help."""


class Command(Protocol):
    """What the module of a command contains."""

    SUMMARY: str
    """One line, for the list of commands."""
    DESCRIPTION: str
    """What it does, for a person who has never run it."""
    EXAMPLES: tuple[tuple[str, str], ...]
    """A purpose, and the command line for it."""

    def add_arguments(self, parser: ArgumentParser) -> None: ...

    def run(self, args: Namespace) -> int: ...


def load(name: str) -> Command:
    """Return the command of that name."""
    return cast("Command", import_module(f"exporter.cli.commands.{name}"))


def summaries() -> dict[str, str]:
    """Return the summary line of each command."""
    return {name: load(name).SUMMARY for name in NAMES}
