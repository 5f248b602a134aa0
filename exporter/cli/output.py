"""Write to standard output: in the right format, and with a quiet end if the reader is gone."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TextIO

from exporter.cli.render import plain_text
from exporter.cli.render.blocks import Block, Line
from exporter.errors import ExporterError
from exporter.text import escape_control

PROGRAM = "hermes-exporter"
before_errors: Callable[[], None] | None = None
"""Called before anything is printed on stderr: it removes what is drawn there."""
PIPE_CLOSED = 141
"""Exit status when the reader closed the pipe: 128 + SIGPIPE, as a shell reports it."""


def is_terminal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """True if the stream is a terminal with a width to fit into."""
    return stream.isatty() and environ.get("TERM", "dumb") != "dumb"


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """True if the stream is a terminal that can show colour, and the user did not refuse it."""
    return is_terminal(stream, environ) and not environ.get("NO_COLOR")


def show(
    blocks: Iterable[Block],
    stream: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Print a report: fitted to a terminal, with colour if wanted; otherwise as plain text."""
    stream = stream or sys.stdout
    blocks = _with_real_path(blocks, as_called())
    environ = os.environ if environ is None else environ
    if stream is not None and is_terminal(stream, environ):
        from exporter.cli.render import rich_text

        ascii_only = "utf" not in (stream.encoding or "").lower()
        colour = wants_colour(stream, environ)
        emit(rich_text.render(blocks, ascii_only=ascii_only, colour=colour), stream)
    else:
        emit(plain_text.render(blocks), stream)


def as_called() -> str:
    """Return what to type to run this program: its name, or its path if `PATH` lacks it."""
    called = os.path.abspath(sys.argv[0])
    if os.path.basename(called) != PROGRAM or not os.access(called, os.X_OK):
        return PROGRAM
    found = shutil.which(PROGRAM)
    return PROGRAM if found and os.path.samefile(found, called) else shlex.quote(called)


def _with_real_path(blocks: Iterable[Block], program: str) -> Iterator[Block]:
    """Yield the blocks; commands to copy begin with the program as it was called."""
    for block in blocks:
        if program != PROGRAM and isinstance(block, Line) and block.whole:
            command = block.pieces[0]
            text = command.text.removeprefix(f"{PROGRAM} ")
            first = dataclasses.replace(command, text=f"{program} {text}")
            block = dataclasses.replace(block, pieces=(first, *block.pieces[1:]))
        yield block


def show_json(value: object, stream: TextIO | None = None) -> None:
    """Print JSON in ASCII: no name can contain control codes for the terminal."""
    emit(json.dumps(value, indent=2) + "\n", stream)


def print_errors(*messages: str) -> None:
    """Print one line on stderr for each message, whatever it contains; ignore a closed stderr."""
    if before_errors is not None and messages:
        before_errors()
    try:
        sys.stderr.write("".join(f"{PROGRAM}: {escape_control(message)}\n" for message in messages))
        sys.stderr.flush()
    except (OSError, AttributeError, ValueError):
        pass


def emit(text: str, stream: TextIO | None = None) -> None:
    """Write all of the text now, so that we report a failure and not the interpreter at exit."""
    stream = stream or sys.stdout
    if stream is None:
        raise ExporterError("cannot write: standard output is closed")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _discard(stream)
        raise SystemExit(PIPE_CLOSED) from None
    except OSError as error:
        _discard(stream)
        raise ExporterError(f"cannot write to standard output: {error.strerror}") from error


def _discard(stream: TextIO) -> None:
    """Discard what is still buffered, or the interpreter would try to write it again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
