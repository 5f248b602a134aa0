"""The methods of `HostService` that act, done by a running agent.

Questions to the person, progress and signals stay in the command. The first Ctrl-C asks the agent
to stop at the next safe point. After a second one the command no longer waits; the agent then stops
the run as it does for any command that goes away.
"""

from __future__ import annotations

import select
import socket
import struct
from contextlib import ExitStack
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from exporter import __version__
from exporter.agent.manual_prune import PruneCommand
from exporter.agent.manual_reap import ReapCommand
from exporter.agent.manual_run import Acting, OnProgress
from exporter.agent.run_history import Announce, UndoReport
from exporter.agent.run_messages import (
    CANCEL,
    GO,
    SILENCE_SECONDS,
    RunAnnounced,
    RunBegins,
    RunMessage,
    RunProgress,
)
from exporter.agent.run_result import RunReport
from exporter.agent.socket_messages import LENGTH, REPLY_BYTES_MAX, Question, Reply, frame
from exporter.cli.connect import AgentAbsentError, connected, result_of
from exporter.errors import InterruptedRunError, PartlyDoneError
from exporter.pruner.models import State
from exporter.reaper.plan import OpenSessionState
from exporter.workers.cancellation import Cancellation

T = TypeVar("T")

_MESSAGES: Final = msgspec.json.Decoder(RunMessage)


class AgentService:
    """The agent that listens on a socket. Every method raises AgentAbsentError if it cannot act for
    these homes; then nothing was done.
    """

    def __init__(self, path: str, homes: tuple[str, ...]) -> None:
        self._path = path
        self._homes = homes

    def reap(self, command: ReapCommand, acting: Acting) -> RunReport[OpenSessionState]:
        found = self._run("reap", msgspec.to_builtins(command), acting=acting)
        return msgspec.convert(found, RunReport[OpenSessionState])

    def prune(
        self, command: PruneCommand, progress: OnProgress, acting: Acting
    ) -> RunReport[State]:
        found = self._run("prune", msgspec.to_builtins(command), acting=acting, progress=progress)
        return msgspec.convert(found, RunReport[State])

    def undo(self, run: str | None, announce: Announce, acting: Acting) -> UndoReport:
        found = self._run("undo", {"run": run}, acting=acting, announce=announce)
        return msgspec.convert(found, UndoReport)

    def lost_by_purge(self, run: str | None) -> list[str]:
        return msgspec.convert(self._run("lost_by_purge", {"run": run}), list[str])

    def purge(self, run: str | None, acting: Acting) -> RunReport[Any]:
        found = self._run("purge", {"run": run}, acting=acting)
        return msgspec.convert(found, RunReport[Any])

    def _run(
        self,
        command: str,
        arguments: dict[str, Any],
        *,
        acting: Acting | None = None,
        progress: OnProgress | None = None,
        announce: Announce | None = None,
    ) -> Any:
        question = Question(__version__, command, arguments, list(self._homes))
        began: RunBegins | None = None
        with ExitStack() as stack:
            try:
                channel = stack.enter_context(connected(self._path))
                channel.sendall(frame(question))
                said = _Messages(channel)
                while not isinstance(message := said.next(), Reply):
                    match message:
                        case RunProgress() if progress is not None:
                            progress(message.home, message.done, message.total)
                        case RunAnnounced() if announce is not None:
                            announce(message.chosen, message.newest)
                        case RunBegins() if acting is not None:
                            said.cancellation = stack.enter_context(acting(message.run))
                            began = message
                            channel.sendall(GO)
            except KeyboardInterrupt:
                if began is None:
                    raise
                raise InterruptedRunError(
                    f"no longer waiting: the agent stops {_named(command, began.run)} at the next "
                    "safe point; `hermes-exporter history` tells what it did"
                ) from None
            except (OSError, EOFError, msgspec.MsgspecError, ValueError, struct.error) as error:
                if began is None:
                    raise AgentAbsentError(str(error)) from error
                _lost_in_the_middle(command, began.run)
        return result_of(message)


def _named(command: str, run: str) -> str:
    if command == "undo":
        return f"the undo of run {run}"
    return f"run {run}" if command != "purge" else "the purge"


def _lost_in_the_middle(command: str, run: str) -> NoReturn:
    does = "goes on" if command == "undo" else "gives it back"
    way_back = f", and `hermes-exporter undo {run}` {does}" if command != "purge" else ""
    raise PartlyDoneError(
        f"the agent went away in the middle of {_named(command, run)}; "
        f"the next command finds out what it did{way_back}"
    )


class _Messages:
    """The messages of the agent. Once there is a cancellation, it is passed on as soon as it is
    requested.
    """

    def __init__(self, channel: socket.socket) -> None:
        channel.settimeout(SILENCE_SECONDS)
        self._channel = channel
        self.cancellation: Cancellation | None = None

    def next(self) -> RunMessage:
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        if length > REPLY_BYTES_MAX:
            raise ValueError("not an agent")
        message: RunMessage = _MESSAGES.decode(self._read(length))
        return message

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            self._wait()
            part = self._channel.recv(min(size, 1024 * 1024))
            if not part:
                raise EOFError("the agent is gone")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _wait(self) -> None:
        if self.cancellation is None:
            return
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self.cancellation, select.POLLIN)
        ready = poll.poll(SILENCE_SECONDS * 1000)
        if any(descriptor == self.cancellation.fileno() for descriptor, _ in ready):
            self.cancellation = None
            self._channel.sendall(CANCEL)
