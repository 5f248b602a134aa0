"""Recognise the kind of a Hermes process by its command line.

A command line may hold a prompt, and an environment holds keys. So both are reduced here to a kind,
a session id and a flag, and then dropped; no other text leaves this module.

A kind is known only from Hermes's own console scripts and from `-m MODULE`. A folder, another
file's name or a lock proves nothing: a program that embeds Hermes may have any of these. A command
line counts as unknown unless every option is understood. A wrong guess here could make a live
session look dead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from exporter.hermes.command_line import CommandLine, read_command_line

DATABASE_NAME: Final = "state.db"
GATEWAY_LOCK_NAME: Final = "gateway.lock"
_SESSION_VARIABLE: Final = b"HERMES_SESSION_ID="
_SESSION_ID_MAX: Final = 512
_OWN_ID_SHAPE: Final = re.compile(
    r"\d{8}_\d{6}_[0-9a-f]{6,8}"
    r"|cron_[\w-]{1,64}_\d{8}_\d{6}"
    r"|api_\d{1,16}_[0-9a-f]{8}"
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
_INTERPRETER: Final = re.compile(r"(python|pypy)[\d.]*t?", re.IGNORECASE)


class ProcessKind(StrEnum):
    """The kinds of processes. The table of hosts and sources uses these values."""

    GATEWAY = "gateway"
    CLI = "cli"
    ONESHOT = "oneshot"
    """Answers one query and ends. With an empty query Hermes starts a chat instead."""
    TUI = "tui"
    DASHBOARD = "dashboard"
    ACP = "acp"
    CRON = "cron"
    SLASH_WORKER = "slash_worker"
    MAINTENANCE = "maintenance"
    """A Hermes command that runs no agent, and loads no plugin that could run one."""
    EXPORTER = "exporter"
    """A process that this agent started. It is known by its PID, never by its arguments."""
    HERMES = "hermes"
    """Certainly Hermes, but of an unknown kind."""
    OTHER = "other"
    """Not recognised: it could host any session."""


class NamedBy(StrEnum):
    """The place where a process names the session that it runs."""

    SESSION_KEY = "session_key"
    RESUME = "resume"
    CHILD_ENVIRONMENT = "child_environment"


class Role(Struct, frozen=True):
    """The kind of a process and the session that it names, by its command line."""

    kind: ProcessKind
    session_id: str | None = None
    how: NamedBy | None = None
    may_resume: bool = False
    """True if the process was told to resume or continue a session, or may have been."""


UNREADABLE: Final = Role(ProcessKind.OTHER, may_resume=True)
_ANY_HERMES: Final = Role(ProcessKind.HERMES, may_resume=True)

_MODULES: Final = {
    "acp_adapter": ProcessKind.ACP,
    "acp_adapter.__main__": ProcessKind.ACP,
    "acp_adapter.entry": ProcessKind.ACP,
    "cron.scheduler": ProcessKind.CRON,
    "gateway.run": ProcessKind.GATEWAY,
    "tui_gateway.compute_host": ProcessKind.TUI,
    "tui_gateway.entry": ProcessKind.TUI,
}
_COMMANDS: Final = {
    "acp": ProcessKind.ACP,
    "backup": ProcessKind.MAINTENANCE,
    "dashboard": ProcessKind.DASHBOARD,
    "insights": ProcessKind.MAINTENANCE,
    "logs": ProcessKind.MAINTENANCE,
    "serve": ProcessKind.DASHBOARD,
    "status": ProcessKind.MAINTENANCE,
}
# Not in these tables, because not maintenance: `sessions browse` replaces itself by `--resume ID`
# with the same PID. `doctor` and `mcp serve` load the user's plugins, and plugins may run agents in
# threads (0.13 to 0.19).
_ACTIONS: Final = {
    ("cron", "run"): ProcessKind.CRON,
    ("cron", "tick"): ProcessKind.CRON,
    ("gateway", None): ProcessKind.GATEWAY,
    ("gateway", "restart"): ProcessKind.GATEWAY,
    ("gateway", "run"): ProcessKind.GATEWAY,
    ("sessions", "archive"): ProcessKind.MAINTENANCE,
    ("sessions", "delete"): ProcessKind.MAINTENANCE,
    ("sessions", "export"): ProcessKind.MAINTENANCE,
    ("sessions", "list"): ProcessKind.MAINTENANCE,
    ("sessions", "optimize"): ProcessKind.MAINTENANCE,
    ("sessions", "prune"): ProcessKind.MAINTENANCE,
    ("sessions", "rename"): ProcessKind.MAINTENANCE,
    ("sessions", "repair"): ProcessKind.MAINTENANCE,
    ("sessions", "stats"): ProcessKind.MAINTENANCE,
}


def classify(command_line: bytes) -> Role:
    """Return the role of the process with this /proc/PID/cmdline."""
    if command_line.strip(b"\0") == b"hermes":
        return _ANY_HERMES  # setproctitle has overwritten the arguments
    arguments = os.fsdecode(command_line.removesuffix(b"\0")).split("\0")
    if not arguments[0]:
        return UNREADABLE
    if not _INTERPRETER.fullmatch(os.path.basename(arguments[0])):
        return UNREADABLE  # Python runs a console script, so the interpreter's name comes first
    module, rest = _skip_interpreter_options(arguments[1:])
    if module is not None:
        return _classify_module(module, rest)
    return _classify_script(rest[0], rest[1:]) if rest else UNREADABLE


def session_in_environment(environment: bytes) -> str | None:
    """Return the session that a Hermes process passed to its child; None if it passed none."""
    for entry in environment.split(b"\0"):
        if entry.startswith(_SESSION_VARIABLE):
            return _plausible_id(os.fsdecode(entry.removeprefix(_SESSION_VARIABLE)))
    return None


def _skip_interpreter_options(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return (module of -m, its arguments) or (None, script and its arguments)."""
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        option = rest.pop(0)
        if option == "--check-hash-based-pycs":
            del rest[:1]
        if option.startswith("--"):
            continue
        for position, letter in enumerate(option[1:], start=1):
            attached = option[position + 1 :]
            if letter == "c":
                return None, []
            if letter == "m":
                return (attached or (rest.pop(0) if rest else "")), rest
            if letter in "WX":
                if not attached:
                    del rest[:1]
                break
    return None, rest


def _classify_script(path: str, rest: Sequence[str]) -> Role:
    """Classify by the package's console scripts. The same three exist in 0.13 to 0.19."""
    match os.path.basename(path):
        case "hermes":
            return _classify_command(rest)
        case "hermes-acp":
            return Role(ProcessKind.ACP)
        case "hermes-agent":
            return _ANY_HERMES
    return UNREADABLE


def _classify_module(module: str, rest: Sequence[str]) -> Role:
    if module == "hermes_cli.main":
        return _classify_command(rest)
    if module == "tui_gateway.slash_worker":
        return _classify_slash_worker(rest)
    kind = _MODULES.get(module)
    return UNREADABLE if kind is None else Role(kind)


def _classify_slash_worker(arguments: Sequence[str]) -> Role:
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--session-key":
            session_id = value if equals else "".join(arguments[position + 1 : position + 2])
            plausible = _plausible_id(session_id)
            if plausible is not None:
                return Role(ProcessKind.SLASH_WORKER, plausible, NamedBy.SESSION_KEY)
    return Role(ProcessKind.SLASH_WORKER, may_resume=True)


def _classify_command(arguments: Sequence[str]) -> Role:
    """Return the role of `hermes ARGUMENTS`."""
    line = read_command_line(arguments)
    if line is None:
        return _ANY_HERMES
    if line.options.get("--oneshot"):  # an empty prompt counts as no prompt: it is a chat
        return _with_resume(ProcessKind.ONESHOT, line)
    if line.command in {None, "chat"}:
        return _with_resume(_chat_kind(line), line)
    action = line.rest[0] if line.rest else None
    kind = _COMMANDS.get(line.command or "") or _ACTIONS.get((line.command or "", action))
    return _ANY_HERMES if kind is None else Role(kind)


def _chat_kind(line: CommandLine) -> ProcessKind:
    if "--tui" in line.options:
        return ProcessKind.TUI
    # `-q ""` is an interactive chat. An image without a query is not.
    asked = line.options.get("--query") or line.options.get("--image")
    return ProcessKind.ONESHOT if asked else ProcessKind.CLI


def _with_resume(kind: ProcessKind, line: CommandLine) -> Role:
    if "--continue" not in line.options and "--resume" not in line.options:
        return Role(kind)
    # A title is text of the user, so keep only a value with the shape of an id.
    if line.resume and _OWN_ID_SHAPE.fullmatch(line.resume):
        return Role(kind, line.resume, NamedBy.RESUME, may_resume=True)
    return Role(kind, may_resume=True)


def _plausible_id(text: str) -> str | None:
    return text if 0 < len(text) <= _SESSION_ID_MAX and text.isprintable() else None
