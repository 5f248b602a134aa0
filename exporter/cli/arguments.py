"""Options that several commands share, and the `Options` made from them."""

from __future__ import annotations

import dataclasses
import os
import shlex
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace, _ArgumentGroup
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from exporter import logs
from exporter.agent.options import DEFAULT_LISTEN_ADDRESS, DEFAULT_TELEMETRY_PATH, Options
from exporter.cli import output
from exporter.config import paths
from exporter.errors import ExporterError, PartlyDoneError, UsageError
from exporter.text import join_words, quoted, suggestion

if TYPE_CHECKING:  # a command that only asks loads nothing of this
    from exporter.agent.run_result import RunReport

COMMON = "common options"
"""The title of the options that every command has."""
COLLECTORS = "collectors"
AGENT = "agent options"
"""The title of the options of commands that ask a running agent."""
_COLLECTOR = "collector."
_OWN_FILES = ("config_file", "state_dir", "web_config_file")
"""Options that name files of this command: a running agent may use others."""


def add_common(parser: ArgumentParser, *, takes_homes: bool = True) -> None:
    """Add the options of every command; a command without homes has --home only to refuse it."""
    parser.set_defaults(as_service=True)
    group = parser.add_argument_group(COMMON)
    group.add_argument(
        "--config.file",
        dest="config_file",
        metavar="FILE",
        help="YAML configuration (default: see files below)",
    )
    group.add_argument(
        "--home",
        dest="homes",
        metavar="PATH",
        action="append",
        type=directory,
        help="a HERMES_HOME directory; may be repeated (default: every home on this host)"
        if takes_homes
        else SUPPRESS,
    )
    group.add_argument(
        "--state-dir",
        metavar="DIR",
        type=directory,
        help="directory for counters, labels and printed plans (default: see files below)",
    )
    group.add_argument(
        "--log.level",
        dest="log_level",
        metavar="LEVEL",
        type=OneOf(logs.LEVELS),
        default="warn",
        help=f"{join_words(logs.LEVELS)} (default: %(default)s)",
    )
    group.add_argument(
        "--log.format",
        dest="log_format",
        metavar="FORMAT",
        type=OneOf(logs.FORMATS),
        default="logfmt",
        help=f"{join_words(logs.FORMATS)} (default: %(default)s)",
    )


def add_agent(parser: ArgumentParser) -> None:
    """Add the options of commands that ask a running agent."""
    group = parser.add_argument_group(AGENT)
    group.add_argument(
        "--agent.socket",
        dest="agent_socket",
        metavar="PATH",
        help="ask the agent on this socket; the default is that of this host or of this user",
    )
    group.add_argument(
        "--fresh",
        action="store_true",
        help="have the agent scan now, or read all anew without one; reap and prune do so always",
    )
    group.add_argument(
        "--no-agent", dest="no_agent", action="store_true", help="do it without an agent"
    )


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON with stable keys")


def add_plan(parser: ArgumentParser) -> None:
    """Add the options of commands that act: nothing is done without --yes."""
    parser.add_argument(
        "--yes", action="store_true", help="do it; without --yes only the plan is shown"
    )
    parser.add_argument(
        "--plan",
        metavar="HASH",
        help="with --yes: exactly the plan that was shown; what no longer qualifies stays",
    )
    parser.add_argument("--all", action="store_true", help="list every item, not only the first 20")


def add_sources(parser: ArgumentParser, example: str) -> None:
    parser.add_argument(
        "--source",
        dest="sources",
        metavar="SOURCE",
        action="append",
        help=f"only sessions of this source, e.g. {example}; may be repeated",
    )


def refuse_plan_without_yes(args: Namespace) -> None:
    if args.plan is not None and not args.yes:
        raise UsageError("--plan executes a plan, so it needs --yes; without both a plan is shown")


def add_include_undone(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--include-undone",
        action="store_true",
        help="also what an undo gave back; without it that stays for `prune.keep.undone` (30d)",
    )


def repeat_options(args: Namespace) -> str:
    """Return the common options as they were given, for the next command that the user types."""
    words: list[str] = []
    for home in args.homes or ():
        words += ["--home", home]
    if args.config_file is not None:
        words += ["--config.file", args.config_file]
    if args.state_dir is not None:
        words += ["--state-dir", args.state_dir]
    # A plan is kept by the agent that showed it, or by none.
    if getattr(args, "agent_socket", None) is not None:
        words += ["--agent.socket", args.agent_socket]
    if getattr(args, "no_agent", False):
        words.append("--no-agent")
    return "".join(f" {shlex.quote(word)}" for word in words)


def repeat_command(args: Namespace) -> str:
    """Return the command line as it was given, for a user who goes on where it was stopped."""
    return shlex.join([output.PROGRAM, *args.words])


def exit_status(outcome: str | None) -> int:
    """Return the exit status of a run; the outcome is None if there was nothing to do."""
    return {"failed": 1, "partial": 3, "unknown": 3, "interrupted": 130}.get(outcome or "", 0)


def show_report_json(result: RunReport[Any]) -> None:
    """Print a reap or prune as JSON; what JSON has no key for goes to stderr."""
    unsaved = f"the plan could not be saved: {result.not_saved}" if result.not_saved else ""
    output.print_errors(*filter(None, [result.in_the_way, unsaved]))
    output.show_json(result.json())


def run_exit_status(result: RunReport[Any]) -> int:
    """Return the exit status of a reap or prune in all homes; raise if homes could not be read."""
    outcome = result.outcome.value if result.outcome is not None else None
    left_out = {"cannot be read": result.unread, "refused": result.refused}
    troubles = [f"{why}: {', '.join(homes)}" for why, homes in left_out.items() if homes]
    if troubles:
        message = f"not done everywhere; {'; '.join(troubles)}; `hermes-exporter check` tells why"
        nothing_done = not result.plans or outcome == "failed"
        raise ExporterError(message) if nothing_done else PartlyDoneError(message)
    return 3 if result.could_not_see else exit_status(outcome)


def add_web(parser: ArgumentParser) -> None:
    """Add the options of the HTTP server."""
    group = parser.add_argument_group("web options")
    _add_listen_address(group)
    group.add_argument(
        "--web.allowed-host",
        dest="allowed_hosts",
        metavar="NAME",
        action="append",
        help="also answer to this name on loopback; as behind a proxy; may be repeated",
    )
    group.add_argument(
        "--web.telemetry-path",
        dest="telemetry_path",
        metavar="PATH",
        default=DEFAULT_TELEMETRY_PATH,
        help="path of the metrics (default: %(default)s)",
    )
    group.add_argument(
        "--agent.socket",
        dest="agent_socket",
        metavar="PATH",
        help="socket on which commands ask this agent; empty for none (default: "
        "/run/hermes-exporter/agent.sock for root, below $XDG_RUNTIME_DIR for a user)",
    )
    group.add_argument(
        "--web.enable-lifecycle",
        dest="enable_lifecycle",
        action="store_true",
        help="allow POST /-/reload; it reads the configuration again",
    )
    group.add_argument("--web.config.file", **_web_config_file())


def add_web_to_check(parser: ArgumentParser) -> None:
    """Add the options of the HTTP server that can be checked without one."""
    group = parser.add_argument_group("web options")
    _add_listen_address(group)
    group.add_argument("--web.config.file", **_web_config_file())


def _add_listen_address(group: _ArgumentGroup) -> None:
    from exporter.web.listen import check_listen_address

    def listen_address(text: str) -> str:
        check_listen_address(text)
        return text

    group.add_argument(
        "--web.listen-address",
        dest="listen_addresses",
        metavar="ADDRESS",
        action="append",
        type=listen_address,
        help=f"HOST:PORT, :PORT or unix:PATH; default {DEFAULT_LISTEN_ADDRESS}; :PORT is every "
        "interface; may be repeated",
    )


def _web_config_file() -> dict[str, Any]:
    return {
        "dest": "web_config_file",
        "metavar": "FILE",
        "help": "TLS, client certificates and users; in the format of node_exporter's file",
    }


def add_collectors(parser: ArgumentParser) -> None:
    """Add a pair of switches for each collector."""
    from exporter import collectors

    group = parser.add_argument_group(
        COLLECTORS, "All are on; --collector.NAME cancels an earlier --no-collector.NAME."
    )
    for name, about in ((each.name, each.about) for each in collectors.collectors()):
        dest = f"{_COLLECTOR}{name}"
        group.add_argument(
            f"--collector.{name}", dest=dest, action="store_true", default=True, help=SUPPRESS
        )
        group.add_argument(
            f"--no-collector.{name}",
            dest=dest,
            action="store_false",
            help=f"switch off: {about}",
        )


def options(args: Namespace) -> Options:
    """Return the given options; options that a command does not have keep their defaults.

    If no configuration was named and this host has one, the command uses that one and says so:
    otherwise it would not do what the agent does. `serve` looks for it by itself (`daemon`). A
    command that an agent may answer says it only if no agent answers (`connect`).
    """
    given = vars(args)
    if args.config_file is None and args.as_service:
        file, note = _service_config_file()
        given = {**given, "config_file": file, "config_note": note}
        if note and not hasattr(args, "no_agent"):  # a command that no agent answers
            output.print_errors(note)
    shared = {field.name for field in dataclasses.fields(Options)} & given.keys()
    off = {name for name, on in given.items() if name.startswith(_COLLECTOR) and not on}
    repeated = {"homes", "listen_addresses", "allowed_hosts"} & shared
    return dataclasses.replace(
        Options(
            state_dir=args.state_dir or paths.default_state_dir(),
            names_own_files=any(getattr(args, name, None) is not None for name in _OWN_FILES),
        ),
        **{name: given[name] for name in shared - repeated - {"state_dir"}},
        **cast(Any, {name: tuple(given[name]) for name in repeated if given[name]}),
        disabled_collectors=frozenset(name.removeprefix(_COLLECTOR) for name in off),
    )


def _service_config_file() -> tuple[str | None, str]:
    """Return the configuration file of the service, and what to say about it.

    The file is None if there is none, or this user cannot read it.
    """
    file = paths.SYSTEM_CONFIG_FILE
    if os.access(file, os.R_OK):
        return file, f"configuration: {file}; --config.file names another"
    if os.path.lexists(file):
        return None, f"configuration: the defaults, for {file} cannot be read as this user"
    return None, ""


class OneOf:
    """A type for argparse: one of the words, or an error that names the nearest."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)

    def __call__(self, text: str) -> str:
        if text in self.words:
            return text
        raise ArgumentTypeError(f"unknown value {quoted(text)}, {suggestion(text, self.words)}")


def directory(text: str) -> str:
    """A type for argparse: the absolute path; no shell expands the `~` of `--home=~/x`."""
    if not text or "\0" in text:
        raise ArgumentTypeError("expected a directory")
    return os.path.abspath(os.path.expanduser(text))
