"""Writing to standard output: the right form for what it is, and a quiet end when nobody reads."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from exporter.cli.render import plain_text
from exporter.cli.render.blocks import Block
from exporter.errors import ExporterError
from exporter.text import escape_control

PROGRAM = "hermes-exporter"
PIPE_CLOSED = 141
"""Exit status when the reader of a pipe left: 128 + SIGPIPE, as a shell reports it."""


def is_terminal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether the stream is a terminal with a width to fit into."""
    return stream.isatty() and environ.get("TERM", "dumb") != "dumb"


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether the stream is a terminal that can show colour and whose user has not refused it."""
    return is_terminal(stream, environ) and not environ.get("NO_COLOR")


def show(
    blocks: Iterable[Block],
    stream: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Print a report: to fit a terminal, with colour where it is welcome; else as plain text."""
    stream = stream or sys.stdout
    environ = os.environ if environ is None else environ
    if stream is not None and is_terminal(stream, environ):
        from exporter.cli.render import rich_text

        ascii_only = "utf" not in (stream.encoding or "").lower()
        colour = wants_colour(stream, environ)
        emit(rich_text.render(blocks, ascii_only=ascii_only, colour=colour), stream)
    else:
        emit(plain_text.render(blocks), stream)


def show_json(value: object, stream: TextIO | None = None) -> None:
    """Print JSON in ASCII: whatever a name holds, a terminal has nothing in it to act on."""
    emit(json.dumps(value, indent=2) + "\n", stream)


def print_errors(*messages: str) -> None:
    """One line on stderr for each message, whatever is in it; a closed stderr is no concern."""
    try:
        sys.stderr.write("".join(f"{PROGRAM}: {escape_control(message)}\n" for message in messages))
        sys.stderr.flush()
    except (OSError, AttributeError, ValueError):
        pass


def emit(text: str, stream: TextIO | None = None) -> None:
    """Write all of the text now, so that a failure is ours to tell and not the interpreter's."""
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
    """Send what is still buffered nowhere, or the interpreter would try again when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
