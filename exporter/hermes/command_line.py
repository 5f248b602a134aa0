"""The arguments of the `hermes` program, parsed as Hermes's own parser parses them.

The result keeps only the facts that describe the process: the options, the session to resume and
the subcommand. If one argument is not in these tables (a newer Hermes, an ambiguous abbreviation),
the whole line is unreadable; it is never half understood. A test compares these tables with the
parsers of the real releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

_WITH_VALUE: Final = frozenset(
    {
        "--image",
        "--max-turns",
        "--model",
        "--oneshot",
        "--profile",
        "--provider",
        "--query",
        "--resume",
        "--skills",
        "--source",
        "--toolsets",
        "--usage-file",
    }
)
_WITHOUT_VALUE: Final = frozenset(
    {
        "--accept-hooks",
        "--checkpoints",
        "--cli",
        "--dev",
        "--help",
        "--ignore-rules",
        "--ignore-user-config",
        "--no-restore-cwd",
        "--pass-session-id",
        "--quiet",
        "--safe-mode",
        "--tui",
        "--verbose",
        "--version",
        "--worktree",
        "--yolo",
    }
)
_SESSION_NAMES: Final = frozenset({"--continue", "--resume"})
"""Hermes joins the words that follow these options, up to the next option or subcommand."""
_LONG: Final = _WITH_VALUE | _WITHOUT_VALUE | _SESSION_NAMES
_SHORT: Final = {
    "c": "--continue",
    "h": "--help",
    "m": "--model",
    "p": "--profile",
    "Q": "--quiet",
    "q": "--query",
    "r": "--resume",
    "s": "--skills",
    "t": "--toolsets",
    "V": "--version",
    "v": "--verbose",
    "w": "--worktree",
    "z": "--oneshot",
}
_HOSTS: Final = frozenset(
    {"acp", "cron", "dashboard", "gateway", "mcp", "serve", "sessions", "web"}
)
"""Subcommands that are not a chat. A session may have the same name."""


class CommandLine(NamedTuple):
    """The request to Hermes, parsed; never keeps a prompt, a path or a title."""

    options: dict[str, bool]
    """The options that were given. True if the last value of the option is not empty."""
    resume: str | None
    """The value of --resume: an id, or a title. The caller must not keep a title."""
    command: str | None
    rest: list[str]
    """Arguments of a subcommand other than chat. The caller examines and drops them."""


def read_command_line(arguments: Sequence[str]) -> CommandLine | None:
    """Parse the arguments after `hermes`; return None if one of them is not certain."""
    waiting = list(arguments)
    options: dict[str, bool] = {}
    resume: str | None = None
    command: str | None = None
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("-"):
            if command is not None:
                return None
            command = word
            if command != "chat":
                return CommandLine(options, resume, command, _without_profile(waiting))
            continue
        found = _split_option(word)
        if found is None:
            return None
        for name, attached in found:
            value = _take_value(name, attached, waiting)
            if value is None:
                return None
            options[name] = bool(value) or name in _WITHOUT_VALUE
            resume = value if name == "--resume" else resume
    return CommandLine(options, resume, command, [])


def _split_option(word: str) -> list[tuple[str, str | None]] | None:
    """Return the options in one argument, each with its attached value."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        full = _complete(name)
        return None if full is None else [(full, value if equals else None)]
    found: list[tuple[str, str | None]] = []
    for position, letter in enumerate(word[1:], start=1):
        name = _SHORT.get(letter, "")
        if not name:
            return None
        if name not in _WITHOUT_VALUE:
            attached = word[position + 1 :]
            # `-q=` has an empty value; `-q` alone takes the next argument as its value.
            return [*found, (name, attached.removeprefix("=") if attached else None)]
        found.append((name, None))
    return found or None


def _complete(name: str) -> str | None:
    """Return the only option that has this name or begins with it; None if there is none."""
    if name in _LONG:
        return name
    matches = [option for option in _LONG if option.startswith(name)]
    return matches[0] if len(matches) == 1 and len(name) > 2 else None


def _take_value(name: str, attached: str | None, waiting: list[str]) -> str | None:
    """Return the value of an option, taken from `waiting` if needed; None if it is missing."""
    if name in _WITHOUT_VALUE:
        return "" if attached is None else None
    if attached is not None:
        return attached
    if name in _SESSION_NAMES:
        words: list[str] = []
        while waiting and not waiting[0].startswith("-") and waiting[0] != "chat":
            words.append(waiting.pop(0))
        return None if _HOSTS.intersection(words) else " ".join(words)
    # argparse accepts no value that looks like an option, and Hermes removes the next `-p NAME`
    # before it parses.
    return waiting.pop(0) if waiting and not waiting[0].startswith("-") else None


def _without_profile(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without `-p NAME`.

    Hermes removes it from any position before it parses.
    """
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in {"-p", "--profile"}:
            skip = True
        elif not argument.startswith("--profile="):
            kept.append(argument)
    return kept
