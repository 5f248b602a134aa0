"""Ask a running agent, or scan without one.

An agent is asked if there is one on its usual place, and the person named no configuration and no
state directory of another. If the agent cannot answer for these homes, the command scans by itself.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from exporter import __version__
from exporter.agent.options import Options
from exporter.agent.socket_messages import (
    LENGTH,
    REPLY_BYTES_MAX,
    Question,
    Reply,
    peer_uid,
    usual_sockets,
)
from exporter.cli import output
from exporter.errors import ExporterError, UsageError
from exporter.text import format_age

_CONNECT_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 90.0
_SCAN_INSTEAD: Final = ("unwatched", "busy", "version")


def ask(options: Options, command: str, **arguments: str | None) -> Any | None:
    """Return the answer of an agent; None if the command has to scan by itself.

    Raise the error that the agent answers with, for example about a session that is not there.
    """
    for path in sockets(options):
        question = Question(
            __version__, command, dict(arguments), list(options.homes), options.fresh
        )
        reply = _exchange(path, question)
        if reply is None:
            if options.agent_socket is not None:
                raise ExporterError(f"no agent answers on {path}; --no-agent scans without one")
            continue
        if reply.kind in _SCAN_INSTEAD:
            if reply.kind == "version":
                output.print_errors(f"{reply.error}; scanned without it")
            continue
        if reply.kind == "usage":
            raise UsageError(reply.error)
        if reply.kind:
            raise ExporterError(reply.error)
        _tell_age(reply)
        return reply.result
    return None


def sockets(options: Options) -> Iterator[str]:
    """Yield where an agent may listen: the one that was named, or the host's and the user's own."""
    if options.no_agent:
        return
    if options.agent_socket is not None:
        yield options.agent_socket
        return
    if options.is_particular:
        return
    yield from filter(os.path.exists, usual_sockets())


def _exchange(path: str, question: Question) -> Reply | None:
    try:
        with _connected(path) as channel:
            body = msgspec.json.encode(question)
            channel.sendall(LENGTH.pack(len(body)) + body)
            channel.settimeout(_ANSWER_SECONDS)
            with channel.makefile("rb") as stream:
                (length,) = LENGTH.unpack(stream.read(LENGTH.size))
                if length > REPLY_BYTES_MAX:
                    return None
                return msgspec.json.decode(stream.read(length), type=Reply)
    except (OSError, msgspec.MsgspecError, ValueError, struct.error):
        return None  # a dead agent's socket, or not an agent of ours


@contextmanager
def _connected(path: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(_CONNECT_SECONDS)
        channel.connect(path)
        if peer_uid(channel) not in (0, os.geteuid()):
            raise PermissionError(f"{path} is served by another user")
        yield channel


def _tell_age(reply: Reply) -> None:
    """On a terminal, say how old the figures are."""
    if sys.stderr is not None and sys.stderr.isatty():
        age = format_age(max(0.0, time.time() - reply.seen_at))
        output.print_errors(f"as the agent saw it {age} ago; --fresh scans now")
