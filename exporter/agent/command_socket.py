"""The Unix socket on which commands ask a running agent.

Every user of the host may connect. The kernel says who it is (SO_PEERCRED): root sees and acts on
all homes, a user on the homes of that user. A connection carries one question; the number of
connections, of runs, their size and their time are limited for each user.

If a command goes away while the agent acts for it, its run is stopped at the next safe point, as it
is without an agent when the terminal is closed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from exporter import __version__, logs
from exporter.agent.command_runs import Caller
from exporter.agent.host_queries import AgentQueries
from exporter.agent.manual_prune import PruneCommand
from exporter.agent.manual_reap import ReapCommand
from exporter.agent.memory_service import UnwatchedError, UnwritableError
from exporter.agent.run_messages import CANCEL, GO, RunMessage, RunProgress, RunWaits
from exporter.agent.service import HostService
from exporter.agent.shares import Shares
from exporter.agent.socket_messages import (
    LENGTH,
    REQUEST_BYTES_MAX,
    Question,
    Reply,
    frame,
    peer_uid,
)
from exporter.errors import ExporterError, UsageError, error_location
from exporter.web.queries import QueryError

_CONNECTIONS_MAX: Final = 128
_CONNECTIONS_PER_USER: Final = 16
_READ_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 60.0
_TREND_SECONDS: Final = 86_400.0
"""How far back `trends` goes."""
_DRAIN_SECONDS: Final = 2.0
_KEEPALIVE_SECONDS: Final = 5.0
"""A command that waits for its run gets a message at least this often."""
_SEEN_SECONDS: Final = 4.0
"""How long the reply about a run waits for a scan that has seen what the run did."""
_UNREAD_BYTES_MAX: Final = 64 * 1024
_KINDS: Final = (
    (UnwatchedError, "unwatched"),
    (UnwritableError, "unwritable"),
    (QueryError, "busy"),
    (UsageError, "usage"),
)
"""The `Reply.kind` of each error; any other is `failed`."""
_CLIENT_ERRORS: Final = (OSError, TimeoutError, EOFError, msgspec.MsgspecError, ValueError)

Work = Callable[[HostService, Caller], Any]

log = logs.get("socket")


class CommandSocket:
    """A listening socket; `open` makes it."""

    def __init__(self, agent: AgentQueries, path: str) -> None:
        self.path = path
        self._agent = agent
        self._shares = Shares(_CONNECTIONS_PER_USER, _CONNECTIONS_MAX)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[Any] | None] = set()
        """The tasks that serve a connection."""
        self._identity: tuple[int, int] | None = None
        """Device and inode of our socket file: another agent may replace the file."""
        self._closed = asyncio.Event()

    async def listen(self, listener: socket.socket) -> None:
        found = os.lstat(self.path)
        self._identity = (found.st_dev, found.st_ino)
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listener, limit=REQUEST_BYTES_MAX
        )

    def close(self) -> None:
        """Stop listening, and remove the socket file if it is still ours."""
        self._closed.set()
        if self._server is not None:
            self._server.close()
        try:
            found = os.lstat(self.path)
            if (found.st_dev, found.st_ino) == self._identity:
                os.unlink(self.path)
        except OSError:
            pass  # it was removed already

    async def drain(self) -> None:
        """Wait until the commands whose runs were stopped have their answers."""
        if waiting := {task for task in self._open if task is not None}:
            await asyncio.wait(waiting, timeout=_DRAIN_SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(task := asyncio.current_task())
        try:
            await self._serve_one(reader, writer)
        finally:
            self._open.discard(task)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer.get_extra_info("socket"))
        try:
            if uid is None or not self._shares.take(uid):
                return
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    question = await _read(reader)
                if question.version != __version__:
                    answer = frame(_other_version(question))
                elif question.command in RUNS:
                    answer = await self._act(uid, question, reader, writer)
                else:
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        reply = await self._answer(uid, question)
                        answer = await asyncio.to_thread(frame, reply)  # it may be long
                async with asyncio.timeout(_ANSWER_SECONDS):
                    writer.write(answer)
                    await writer.drain()
            finally:
                self._shares.give_back(uid)
        except _CLIENT_ERRORS:
            pass  # the client is gone, too slow, or did not send a question
        except Exception as error:  # noqa: BLE001 - one client must not end the agent
            log.error("question failed", error=error_location(error))
        finally:
            writer.close()

    async def _answer(self, uid: int, question: Question) -> Reply:
        try:
            if question.fresh:
                await self._agent.next_scan()
            else:
                await self._agent.sees_runs()
            seen_at = self._agent.seen_at()
            result = await self._result(uid, question)
        except (ExporterError, QueryError) as error:
            return _refusal(error)
        return Reply(__version__, result=result, seen_at=seen_at)

    async def _act(
        self,
        uid: int,
        question: Question,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bytes:
        """Do what a command asks for, and return the reply as it is sent."""
        work, loop = RUNS[question.command](question.arguments), asyncio.get_running_loop()

        def send(message: RunMessage) -> None:
            loop.call_soon_threadsafe(_send, writer, message)

        def run(service: HostService) -> bytes:
            return frame(Reply(__version__, result=work(service, caller), seen_at=time.time()))

        caller = Caller(send)
        listening = asyncio.create_task(self._listen_to_command(reader, caller))
        try:
            homes = self._agent.homes(uid, question.homes)
            if question.arguments.get("execute") or question.command in ("undo", "purge"):
                self._agent.refuse_unwritable(homes)
            future = asyncio.wrap_future(self._agent.start(uid, homes, caller, run))
            name = question.command
            log.info("command", command=_LOGGED.get(name, name), uid=uid, homes=len(homes))
            while not (await asyncio.wait((future,), timeout=_KEEPALIVE_SECONDS))[0]:
                _send(writer, RunWaits())
            return future.result()
        except (ExporterError, QueryError) as error:
            return frame(_refusal(error))
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the agent
            where = error_location(error)
            log.error("command failed", command=question.command, error=where)
            return frame(Reply(__version__, "failed", f"the agent failed: {where}"))
        finally:
            caller.close()
            if caller.has_begun:
                self._agent.scan_soon()
                await self._look_again()
            listening.cancel()

    async def _look_again(self) -> None:
        """Wait for a scan, so that every page and command that follows shows what the run did."""
        ends = [
            asyncio.ensure_future(self._agent.next_scan()),
            asyncio.ensure_future(self._closed.wait()),  # then no scan follows
        ]
        await asyncio.wait(ends, timeout=_SEEN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for each in ends:
            each.cancel()

    async def _listen_to_command(self, reader: asyncio.StreamReader, caller: Caller) -> None:
        """Pass on GO and CANCEL of the command, until it is gone."""
        try:
            while (said := await reader.read(1)) in (GO, CANCEL):
                if said == GO:
                    caller.go()
                else:
                    caller.cancel()
        except OSError:
            pass  # it is gone
        self._agent.abandon(caller)

    async def _result(self, uid: int, question: Question) -> Any:
        service = self._agent.service(uid, question.homes)
        asked = msgspec.convert(question.arguments, dict[str, str | None])
        match question.command:
            case "status":
                return await self._agent.in_memory(service.status)
            case "trends":
                homes = self._agent.homes(uid, question.homes)
                return await self._agent.trends_of(homes, time.time() - _TREND_SECONDS)
            case "check":
                return await self._agent.between_scans(service.check)  # it may ask a worker
            case "sessions":
                return await self._agent.in_memory(
                    lambda: service.sessions(
                        asked.get("verdict"),
                        asked.get("source"),
                        over_limit=bool(asked.get("over_limit")),
                    )
                )
            case "explain":
                return await self._agent.between_scans(
                    lambda: service.explain(asked.get("session") or "")
                )
            case "history":
                run = asked.get("run")
                return await self._agent.between_scans(
                    lambda: (
                        *(service.history() if run is None else service.show_run(run)),
                        service.count_homes(),
                    )
                )
        raise ValueError("unknown command")


def _other_version(question: Question) -> Reply:
    why = f"the agent is version {__version__}, this command is {question.version}"
    return Reply(__version__, "version", f"{why}: restart the agent")


def _refusal(error: ExporterError | QueryError) -> Reply:
    kind = next((name for known, name in _KINDS if isinstance(error, known)), "failed")
    exit_status = error.exit_status if isinstance(error, ExporterError) else 1
    return Reply(__version__, kind, str(error), exit_status=exit_status)


def _send(writer: asyncio.StreamWriter, message: RunMessage) -> None:
    """Send a message; if the command does not read, leave out mere reports of progress."""
    unread = writer.transport.get_write_buffer_size()
    if unread > _UNREAD_BYTES_MAX and isinstance(message, RunWaits | RunProgress):
        return
    if not writer.transport.is_closing():
        writer.write(frame(message))


def _reap(asked: dict[str, Any]) -> Work:
    command = msgspec.convert(asked, ReapCommand)
    return lambda service, caller: service.reap(command, caller.acting)


def _prune(asked: dict[str, Any]) -> Work:
    command = msgspec.convert(asked, PruneCommand)
    return lambda service, caller: service.prune(command, caller.progress, caller.acting)


def _undo(asked: dict[str, Any]) -> Work:
    run = msgspec.convert(asked, _OneRun).run
    return lambda service, caller: service.undo(run, caller.announce, caller.acting)


def _lost_by_purge(asked: dict[str, Any]) -> Work:
    run = msgspec.convert(asked, _OneRun).run
    return lambda service, _: service.lost_by_purge(run)


def _purge(asked: dict[str, Any]) -> Work:
    run = msgspec.convert(asked, _OneRun).run
    return lambda service, caller: service.purge(run, caller.acting)


class _OneRun(Struct, frozen=True):
    run: Annotated[str, Meta(max_length=64)] | None = None


RUNS: Final = {
    "reap": _reap,
    "prune": _prune,
    "undo": _undo,
    "lost_by_purge": _lost_by_purge,
    "purge": _purge,
}
"""Commands that the agent carries out in a thread of their own, by name."""


_LOGGED: Final = {"lost_by_purge": "look at the trash before a purge"}
"""In words for the log: questions whose names are not names of commands."""


async def _read(reader: asyncio.StreamReader) -> Question:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > REQUEST_BYTES_MAX:
        raise ValueError("too long")
    return msgspec.json.decode(await reader.readexactly(length), type=Question)


def open_listener(path: str) -> socket.socket:
    """Bind the socket at this path; a stale file of a dead agent is replaced.

    Raise OSError (EADDRINUSE) if a process listens there. The socket's mode lets every user
    connect: the folder's mode and the peer's uid decide who sees what.
    """
    if not sys.platform.startswith("linux"):
        raise OSError(errno.EOPNOTSUPP, "commands cannot prove who they are on this system")
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    if _is_stale(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        before = os.umask(0o111)  # mode 0666 from the beginning: bind itself takes no mode
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(64)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _is_stale(path: str) -> bool:
    """True if a socket is there on which no process listens."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False  # another file: never removed, bind fails with a clear error
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
