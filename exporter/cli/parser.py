"""The command-line parser: argparse with our error lines and with help like a man page."""

from __future__ import annotations

from argparse import (
    SUPPRESS,
    Action,
    ArgumentParser,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Sequence
from typing import Any, NoReturn

from exporter import __version__
from exporter.cli import arguments, commands, output
from exporter.cli.commands import Command
from exporter.cli.output import PROGRAM
from exporter.config.paths import SYSTEM_CONFIG_FILE, SYSTEM_STATE_DIR
from exporter.errors import UsageError
from exporter.text import closest_match, quoted

_FIRST_STEPS = (
    ("every home on this host", f"{PROGRAM} serve"),
    ("a demo that needs no Hermes", f"{PROGRAM} demo"),
)
EXIT_STATUS = (
    ("0", "done"),
    ("1", "failed"),
    ("2", "bad usage or configuration"),
    ("3", "partly done"),
    ("130", "interrupted (128 + the signal)"),
)
FILES = (
    ("FILE of --config.file", "YAML; docs/configuration.md lists every key"),
    (SYSTEM_CONFIG_FILE, "read by the service and by commands"),
    (SYSTEM_STATE_DIR, "counters and labels of a root agent"),
    ("~/.local/state/hermes-exporter", "counters and labels of any other user's agent"),
)
ENVIRONMENT = (
    ("HERMES_HOME", "a home to watch, in addition to ~/.hermes"),
    ("XDG_STATE_HOME", "directory for state instead of ~/.local/state"),
    ("NO_COLOR", "if set, no colour on a terminal"),
)


class Parser(ArgumentParser):
    """The parser of one command."""

    def __init__(self, name: str, command: Command) -> None:
        super().__init__(
            prog=f"{PROGRAM} {name}",
            description=command.DESCRIPTION,
            epilog=_epilog(command.EXAMPLES),
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        self._shown_examples = command.EXAMPLES
        self._takes_homes = name != "demo"
        arguments.add_common(self, takes_homes=self._takes_homes)
        command.add_arguments(self)
        places = "".join(
            f" [{action.metavar}]" if action.nargs == "?" else f" {action.metavar}"
            for action in self._get_positional_actions()
        )
        self.usage = f"{self.prog}{places} [OPTIONS]"

    def parse(self, words: Sequence[str]) -> Namespace:
        """Return the arguments; raise UsageError with the option that was probably meant."""
        args, unknown = self.parse_known_args(words)
        if unknown:
            self.error(self._complaint(unknown[0]))
        return args

    def _complaint(self, word: str) -> str:
        if not word.startswith("-"):
            return f"unexpected argument {quoted(word)}"
        name = word.partition("=")[0]
        meant = closest_match(name, self._option_string_actions)
        fix = f", did you mean '{meant}'?" if meant else ""
        return f"unknown option {quoted(name)}{fix}"

    def shown_actions(self) -> list[Action]:
        """Return what the help lists, in its order."""
        return [action for action in self._actions if action.help is not SUPPRESS]

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see '{self.prog} --help')")

    def print_help(self, file: object = None) -> None:  # noqa: ARG002 - as argparse calls it
        output.emit(self.short_help())

    def short_help(self) -> str:
        """Return the help of this command on one screen: what all commands share is one line."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in self._action_groups:
            if group.title != arguments.COMMON:
                formatter.start_section(group.title)
                formatter.add_text(group.description)
                formatter.add_arguments(group._group_actions)  # noqa: SLF001 - as argparse does
                formatter.end_section()
        shared = _shared(takes_homes=self._takes_homes)
        return f"{formatter.format_help()}\n{_examples(self._shown_examples)}\n{shared}"


class _Formatter(RawDescriptionHelpFormatter):
    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, **{**settings, "max_help_position": 32})


def overview() -> str:
    """Return the help of the program as a whole."""
    return (
        f"usage: {PROGRAM} COMMAND [OPTIONS]\n"
        f"       {PROGRAM} COMMAND --help\n\n"
        "Watch and clean up what hermes-agent leaves behind: sessions that were never\n"
        "ended, and the disk they fill. Reading never disturbs Hermes. Nothing is ended\n"
        "or deleted unless --yes or the configuration says so.\n\n"
        f"{_listing('commands', tuple(commands.summaries().items()))}\n"
        f"{_common_options()}\n"
        f"{_epilog(_FIRST_STEPS)}"
    )


def version() -> str:
    return f"{PROGRAM} {__version__}\n"


def _shared(*, takes_homes: bool) -> str:
    home = " --home," if takes_homes else ""
    return (
        f"Common options (--config.file,{home} --state-dir, --log.*), the exit status,\n"
        f"files and environment are in '{PROGRAM} --help'.\n"
    )


def _common_options() -> str:
    """Return the options of every command, as argparse would show them."""
    parser = ArgumentParser(PROGRAM, add_help=False, formatter_class=_Formatter)
    arguments.add_common(parser)
    return parser.format_help().partition("\n\n")[2]


def _examples(examples: Sequence[tuple[str, str]]) -> str:
    shown = "".join(f"  # {purpose}\n  {line}\n" for purpose, line in examples)
    return f"examples:\n{shown}"


def _epilog(examples: Sequence[tuple[str, str]]) -> str:
    return "\n".join(
        (
            _examples(examples),
            _listing("exit status", EXIT_STATUS),
            _listing("files", FILES),
            _listing("environment", ENVIRONMENT),
        )
    )


def _listing(title: str, entries: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in entries)
    return f"{title}:\n" + "".join(f"  {name:<{width}}  {about}\n" for name, about in entries)
