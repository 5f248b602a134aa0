"""The arguments of the `hermes` program, read as its own parser reads them.

Only what decides about a process is kept: which options were given, the session to resume, the
subcommand. Anything this table does not know (a newer Hermes, an ambiguous abbreviation) makes the
whole line unreadable rather than half understood. A test compares it with the parsers of the real
releases.
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
"""Hermes joins the words that follow these, up to the next option or subcommand."""
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
"""Subcommands that are something else than a chat; a session may bear the same name."""


class CommandLine(NamedTuple):
    """What was asked of Hermes; never a prompt, a path or a title."""

    options: dict[str, bool]
    """Those given, and whether the last value of each is other than empty."""
    resume: str | None
    """What follows --resume: an id, or a title, which must not be kept."""
    command: str | None
    rest: list[str]
    """Arguments of a subcommand other than chat, for the caller to look at and drop."""


def read_command_line(arguments: Sequence[str]) -> CommandLine | None:
    """The arguments after `hermes`; None if they cannot be understood with certainty."""
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
    """The options in one argument, each with the value attached to it."""
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
            # `-q=` has an empty value; `-q` has the next argument's.
            return [*found, (name, attached.removeprefix("=") if attached else None)]
        found.append((name, None))
    return found or None


def _complete(name: str) -> str | None:
    """The one option that this is, or is a beginning of."""
    if name in _LONG:
        return name
    matches = [option for option in _LONG if option.startswith(name)]
    return matches[0] if len(matches) == 1 and len(name) > 2 else None


def _take_value(name: str, attached: str | None, waiting: list[str]) -> str | None:
    """The value of an option, taken off `waiting` if need be; None if it should have one."""
    if name in _WITHOUT_VALUE:
        return "" if attached is None else None
    if attached is not None:
        return attached
    if name in _SESSION_NAMES:
        words: list[str] = []
        while waiting and not waiting[0].startswith("-") and waiting[0] != "chat":
            words.append(waiting.pop(0))
        return None if _HOSTS.intersection(words) else " ".join(words)
    # argparse takes no value that looks like an option, and the next `-p NAME` would be taken out.
    return waiting.pop(0) if waiting and not waiting[0].startswith("-") else None


def _without_profile(arguments: Sequence[str]) -> list[str]:
    """Hermes takes `-p NAME` out before it parses, wherever it stands."""
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
