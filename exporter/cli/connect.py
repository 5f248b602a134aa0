"""Ask a running agent, or scan without one.

The command asks the agent that listens at the usual place, unless its options name a configuration
file or a state directory. If the agent does not watch these homes, the command scans by itself.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from exporter import __version__
from exporter.agent.options import Options
from exporter.agent.socket_messages import (
    LENGTH,
    REPLY_BYTES_MAX,
    Question,
    Reply,
    frame,
    peer_of,
    peer_uid,
)
from exporter.cli import head_start, output
from exporter.cli.scan_notice import scanning
from exporter.config.paths import usual_sockets
from exporter.errors import ExporterError, UsageError
from exporter.text import format_age

if TYPE_CHECKING:  # a command that only asks loads nothing of this
    from exporter.agent.manual_prune import PruneCommand
    from exporter.agent.manual_reap import ReapCommand
    from exporter.agent.manual_run import Acting, OnProgress
    from exporter.agent.run_history import Announce, UndoReport
    from exporter.agent.run_result import RunReport
    from exporter.agent.service import HostService
    from exporter.pruner.models import State
    from exporter.reaper.plan import OpenSessionState

T = TypeVar("T")

_CONNECT_SECONDS: Final = 2.0
_ANSWER_SECONDS: Final = 90.0
_SCAN_INSTEAD: Final = ("unwatched", "busy", "version", "unwritable")
_TOLD: Final = ("version", "unwritable")
"""Those of which a person should know why."""


class AgentAbsentError(ExporterError):
    """This agent cannot do it, and nothing was done."""

    def __init__(self, why: str = "", *, answered: bool = False) -> None:
        """`answered`: there is an agent, and `why` is what a person should know of it."""
        super().__init__(why)
        self.answered = answered


class Acts(Protocol):
    """The methods of `HostService` that act: by a running agent, or without one."""

    def reap(self, command: ReapCommand, acting: Acting) -> RunReport[OpenSessionState]: ...

    def prune(
        self, command: PruneCommand, progress: OnProgress, acting: Acting
    ) -> RunReport[State]: ...

    def undo(self, run: str | None, announce: Announce, acting: Acting) -> UndoReport: ...

    def lost_by_purge(self, run: str | None) -> list[str]: ...

    def purge(self, run: str | None, acting: Acting) -> RunReport[Any]: ...


def ask(options: Options, command: str, **arguments: str | None) -> Any | None:
    """Return the answer of an agent, and say how old it is; None if the command has to scan by
    itself.

    Raise the error that the agent answers with, for example about a session that is not there.
    """
    answer = ask_quietly(options, command, **arguments)
    if answer is None:
        tell_once(options.config_note)
        return None
    _tell_age(answer)
    return answer.result


def ask_quietly(options: Options, command: str, **arguments: str | None) -> Reply | None:
    """The same for a command that says by itself how old the answer is."""
    for path in sockets(options):
        question = Question(
            __version__, command, dict(arguments), list(options.homes), options.fresh
        )
        try:
            with scanning() if options.fresh else nullcontext():
                reply = _exchange(path, question)
            result_of(reply)
        except AgentAbsentError as error:
            _tell_absence(options, path, error)
            continue
        return reply
    return None


def act(options: Options, work: Callable[[Acts], T]) -> T:
    """Have this done by an agent or, if none can, without one."""
    with scanning():
        for path in sockets(options):
            from exporter.cli.agent_service import AgentService

            try:
                return work(AgentService(path, options.homes))
            except AgentAbsentError as error:
                _tell_absence(options, path, error)
        tell_once(options.config_note)
        with alone(options) as service:
            return work(service)


@contextmanager
def alone(options: Options) -> Iterator[HostService]:
    """Return a service that needs no agent; say on a terminal that it scans."""
    with scanning():
        from exporter.workers.starter import Starter

        starter = Starter(head_start.take_server())
        starter.prepare()  # it loads beside us what the workers need
        try:
            from exporter.agent.one_shot import host

            with host(options, starter) as service:
                yield service
        finally:
            starter.stop()
            starter.close()


def result_of(reply: Reply) -> Any:
    """Return the result of a reply, or raise the error that it tells."""
    if reply.kind in _SCAN_INSTEAD:
        raise AgentAbsentError(reply.error if reply.kind in _TOLD else "", answered=True)
    if reply.kind == "usage":
        raise UsageError(reply.error)
    if reply.kind:
        error = ExporterError(reply.error)
        error.exit_status = reply.exit_status
        raise error
    return reply.result


def _tell_absence(options: Options, path: str, error: AgentAbsentError) -> None:
    if not error.answered and options.agent_socket is not None:
        raise ExporterError(f"no agent answers on {path}; --no-agent does it without one")
    if error.answered and str(error):
        output.print_errors(f"{error}; done without it")


def sockets(options: Options) -> Iterator[str]:
    """Yield where an agent may listen: the one that was named, or the host's and the user's own."""
    if options.no_agent:
        return
    if options.agent_socket is not None:
        yield options.agent_socket
        return
    if options.names_own_files:
        return
    yield from filter(os.path.exists, usual_sockets())


def _exchange(path: str, question: Question) -> Reply:
    try:
        with connected(path) as channel:
            channel.sendall(frame(question))
            channel.settimeout(_ANSWER_SECONDS)
            with channel.makefile("rb") as stream:
                (length,) = LENGTH.unpack(stream.read(LENGTH.size))
                if length > REPLY_BYTES_MAX:
                    raise AgentAbsentError
                return msgspec.json.decode(stream.read(length), type=Reply)
    except (OSError, msgspec.MsgspecError, ValueError, struct.error) as error:
        raise AgentAbsentError(str(error)) from error  # dead, or not an agent of ours


@contextmanager
def connected(path: str) -> Iterator[socket.socket]:
    """Connect to an agent of root or of this user; raise OSError if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(_CONNECT_SECONDS)
        channel.connect(path)
        if peer_uid(channel) not in (0, os.geteuid()):
            raise PermissionError(f"{path} is served by another user")
        yield channel


def agent_pid(options: Options) -> int | None:
    """Return the PID of the agent that these options lead to; None if it is not known."""
    for path in sockets(options):
        try:
            with connected(path) as channel:
                peer = peer_of(channel)
        except OSError:
            continue
        return peer.pid or None if peer is not None else None
    return None


@cache
def tell_once(note: str) -> None:
    """Say which configuration is used without an agent."""
    if note:
        output.print_errors(note)


def _tell_age(reply: Reply) -> None:
    """On a terminal, say how old the figures are."""
    if sys.stderr is not None and sys.stderr.isatty():
        age = format_age(max(0.0, time.time() - reply.seen_at))
        output.print_errors(f"as the agent saw it {age} ago; --fresh scans now")
