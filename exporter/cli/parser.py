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

_SCREEN_LINES = 24
"""The lines of a terminal; the prompt takes the last one."""
_SHOWN_EXAMPLES = 3
"""How many examples the help on one screen has, if there is room."""
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
    ("HERMES_EXPORTER_AGENT_SOCKET", "where an agent listens; empty: nowhere"),
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
        self._name = name
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
        """Return the help on one screen: a line for each option; `help COMMAND` has all of it."""
        about, _, _ = (self.description or "").partition("\n\n")
        entries = []
        for group in self._action_groups:
            if group.title == arguments.COLLECTORS:
                told = f"switch one off; 'help {self._name}' lists them"
                entries.append(("--no-collector.NAME", told))
            elif group.title not in (arguments.COMMON, arguments.AGENT):
                entries += [
                    (_invocation(each), _expanded(each))
                    for each in group._group_actions  # noqa: SLF001 - as argparse does
                    if each.help is not SUPPRESS and each.dest != "help"
                ]
        width = max(len(name) for name, _ in entries)
        lines = [f"  {name:<{width}}  {_brief(text, 76 - width)}\n" for name, text in entries]
        above = f"usage: {self.usage}\n\n{about}\n\noptions:\n{''.join(lines)}\nexamples:\n"
        below = f"\n{self._more()}"
        room = _SCREEN_LINES - 1 - above.count("\n") - below.count("\n")
        examples = _short_examples(self._shown_examples[: min(room, _SHOWN_EXAMPLES)])
        return f"{above}{examples}{below}"

    def _more(self) -> str:
        home = " --home," if self._takes_homes else ""
        asks = any(group.title == arguments.AGENT for group in self._action_groups)
        agent = " --no-agent," if asks else ""
        return (
            f"Common options (--config.file,{home} --state-dir,{agent} --log.*), the\n"
            f"exit status, and more about each option are in '{PROGRAM} help {self._name}'.\n"
        )


def _invocation(action: Action) -> str:
    """Return an option or argument as it is written: `-h, --help`, `--plan HASH`, `RUN`."""
    if not action.option_strings:
        return str(action.metavar)
    written = ", ".join(action.option_strings)
    return f"{written} {action.metavar}" if action.nargs != 0 else written


def _expanded(action: Action) -> str:
    return str(action.help).replace("%(default)s", str(action.default))


def _brief(text: str, room: int) -> str:
    """Return a text that fits a line, or else what comes before its first `;`."""
    return text if len(text) <= room else text.partition("; ")[0]


def _short_examples(examples: Sequence[tuple[str, str]]) -> str:
    lines = (
        f"  {line}  # {purpose}" if len(f"{line}{purpose}") <= 74 else f"  {line}"
        for purpose, line in examples
    )
    return "".join(f"{line}\n" for line in lines)


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


def _common_options() -> str:
    """Return the options of every command, as argparse would show them."""
    parser = ArgumentParser(PROGRAM, add_help=False, formatter_class=_Formatter)
    arguments.add_common(parser)
    arguments.add_agent(parser)
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
