"""Run a command line: choose the command, and turn every error into one line and a status."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Callable
from typing import NoReturn

from exporter import logs
from exporter.cli import commands, head_start, output
from exporter.cli.commands import Command
from exporter.cli.output import PROGRAM
from exporter.cli.parser import Parser, overview, version
from exporter.errors import ConfigError, ExporterError, UsageError
from exporter.text import closest_match, escape_control, quoted

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 + SIGINT, as a shell reports it."""

_log = logs.get("cli")


def run(words: list[str], load: Callable[[str], Command] = commands.load) -> int:
    """Run a command line and return its exit status. No traceback ever reaches the user."""
    output.before_errors = head_start.clear  # an error must not follow `scanning...` on its line
    try:
        return _run(words, load)
    except ConfigError as error:
        output.print_errors(*str(error).split("\n"))
        return error.exit_status
    except ExporterError as error:
        output.print_errors(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        _log.debug("system call failed", traceback=traceback.format_exc())
        where = f"{error.filename}: " if error.filename is not None else ""
        output.print_errors(f"{where}{error.strerror or error}")
        return 1
    except Exception as error:  # noqa: BLE001 - a bug must not show a traceback
        _log.debug("internal error", traceback=traceback.format_exc())
        cause = f"{type(error).__name__}: {error}"
        output.print_errors(f"internal error: {cause}; run with --log.level=debug for details")
        return 1


def _run(words: list[str], load: Callable[[str], Command]) -> int:
    first = words[0] if words else ""
    if first in ("-h", "--help", "help"):
        return _help(words[1:])
    if first == "--version":
        output.emit(version())
        return 0
    if first.startswith("-"):
        _refuse_options_first(words)
    command = load(_existing(first))
    args = Parser(first, command).parse(words[1:])
    args.words = words
    logs.setup(args.log_level, args.log_format)
    return command.run(args)


def _help(words: list[str]) -> int:
    """Print the overview, or the full help of a command; `COMMAND --help` shows the short help."""
    if words:
        output.emit(Parser(words[0], commands.load(_existing(words[0]))).format_help())
    else:
        output.emit(overview())
    return 0


def _refuse_options_first(words: list[str]) -> NoReturn:
    """Say what was probably meant: the same words, with the command first."""
    command = next((word for word in words if word in commands.NAMES), "serve")
    others = list(words)
    if command in others:
        others.remove(command)
    meant = shlex.join([PROGRAM, command, *map(escape_control, others)])
    raise UsageError(f"options come after the command: '{meant}' (see '{PROGRAM} --help')")


def _existing(name: str) -> str:
    """Return the name if such a command exists; else raise UsageError."""
    if name in commands.NAMES:
        return name
    hint = f"(see '{PROGRAM} --help')"
    if not name:
        raise UsageError(f"no command given; to serve metrics: '{PROGRAM} serve' {hint}")
    meant = closest_match(name, commands.NAMES)
    fix = f", did you mean '{meant}'?" if meant else ""
    raise UsageError(f"unknown command {quoted(name)}{fix} {hint}")
