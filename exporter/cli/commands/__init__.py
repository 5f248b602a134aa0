"""The commands: one module each, imported only when it is chosen.

A command's module holds what `--help` shows, `add_arguments` for its own options (the common ones
are added to all) and `run`, which returns the exit status. To add one, write the module and put its
name here.
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
    "demo",
)
"""In the order in which help lists them."""


class Command(Protocol):
    """What the module of a command has."""

    SUMMARY: str
    """One line, for the list of commands."""
    DESCRIPTION: str
    """What it does, for a person who has never run it."""
    EXAMPLES: tuple[tuple[str, str], ...]
    """What one may want, and the command line for it."""

    def add_arguments(self, parser: ArgumentParser) -> None: ...

    def run(self, args: Namespace) -> int: ...


def load(name: str) -> Command:
    """The command of that name."""
    return cast("Command", import_module(f"exporter.cli.commands.{name}"))


def summaries() -> dict[str, str]:
    """The line of each command."""
    return {name: load(name).SUMMARY for name in NAMES}
