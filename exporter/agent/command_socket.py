"""The Unix socket on which commands ask a running agent.

Every user of the host may connect. The kernel says who it is (SO_PEERCRED): root sees all homes, a
user the homes of that user. A connection carries one question; the number of connections, their
size and their time are limited for each user.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from exporter import __version__, logs
from exporter.agent.memory_service import MemoryService, UnwatchedError
from exporter.agent.socket_messages import LENGTH, REQUEST_BYTES_MAX, Question, Reply, peer_uid
from exporter.errors import ExporterError, UsageError, error_location
from exporter.web.queries import QueryError

_CONNECTIONS_MAX: Final = 128
_CONNECTIONS_PER_USER: Final = 16
_READ_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 60.0
_CLIENT_ERRORS: Final = (OSError, TimeoutError, EOFError, msgspec.MsgspecError, ValueError)

log = logs.get("socket")


class AgentMemory(Protocol):
    """What the socket needs of the agent."""

    def service(self, uid: int, homes: list[str]) -> MemoryService:
        """Return what this user may ask; raise UnwatchedError if that is nothing."""

    async def in_memory(self, work: Callable[[], Any]) -> Any:
        """Do what only reads memory, in a thread."""

    async def between_scans(self, work: Callable[[], Any]) -> Any:
        """Do what needs a worker, in the scanner's thread."""

    async def next_scan(self) -> None:
        """Scan now, and return when that is done."""

    def seen_at(self) -> float:
        """Return when the last scan ended."""


class CommandSocket:
    """A listening socket; `open` makes it."""

    def __init__(self, memory: AgentMemory, path: str) -> None:
        self.path = path
        self._memory = memory
        self._users: Counter[int] = Counter()
        self._server: asyncio.Server | None = None
        self._identity: tuple[int, int] | None = None

    async def listen(self, listener: socket.socket) -> None:
        found = os.lstat(self.path)
        self._identity = (found.st_dev, found.st_ino)
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listener, limit=REQUEST_BYTES_MAX
        )

    def close(self) -> None:
        """Stop listening, and remove the socket file if it is still ours."""
        if self._server is not None:
            self._server.close()
        try:
            found = os.lstat(self.path)
            if (found.st_dev, found.st_ino) == self._identity:
                os.unlink(self.path)
        except OSError:
            pass  # it was removed already

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer.get_extra_info("socket"))
        try:
            if uid is None or not self._has_place(uid):
                return
            self._users[uid] += 1
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    question = await _read(reader)
                async with asyncio.timeout(_ANSWER_SECONDS):
                    reply = await self._answer(uid, question)
                    body = msgspec.json.encode(reply)
                    writer.write(LENGTH.pack(len(body)) + body)
                    await writer.drain()
            finally:
                self._users[uid] -= 1
                if not self._users[uid]:
                    del self._users[uid]
        except _CLIENT_ERRORS:
            pass  # the client is gone, too slow, or speaks another language
        except Exception as error:  # noqa: BLE001 - one client must not end the agent
            log.error("question failed", error=error_location(error))
        finally:
            writer.close()

    def _has_place(self, uid: int) -> bool:
        return self._users.total() < _CONNECTIONS_MAX and self._users[uid] < _CONNECTIONS_PER_USER

    async def _answer(self, uid: int, question: Question) -> Reply:
        if question.version != __version__:
            why = f"the agent is version {__version__}, this command is {question.version}"
            return _reply("version", f"{why}: restart the agent")
        try:
            if question.fresh:
                await self._memory.next_scan()
            seen_at = self._memory.seen_at()
            if not seen_at:
                return _reply("busy", "the first scan is under way")
            result = await self._result(uid, question)
        except UnwatchedError as error:
            return _reply("unwatched", str(error))
        except QueryError as error:
            return _reply("busy", str(error))
        except UsageError as error:
            return _reply("usage", str(error))
        except ExporterError as error:
            return _reply("failed", str(error))
        return Reply(__version__, result=result, seen_at=seen_at)

    async def _result(self, uid: int, question: Question) -> Any:
        service = self._memory.service(uid, question.homes)
        asked = msgspec.convert(question.arguments, dict[str, str | None])
        match question.command:
            case "status":
                return await self._memory.in_memory(service.status)
            case "check":
                return await self._memory.between_scans(service.check)  # it may ask a worker
            case "sessions":
                return await self._memory.in_memory(
                    lambda: service.sessions(
                        asked.get("verdict"),
                        asked.get("source"),
                        over_limit=bool(asked.get("over_limit")),
                    )
                )
            case "explain":
                return await self._memory.between_scans(
                    lambda: service.explain(asked.get("session") or "")
                )
            case "history":
                run = asked.get("run")
                return await self._memory.between_scans(
                    lambda: (
                        *(service.history() if run is None else service.show_run(run)),
                        service.count_homes(),
                    )
                )
        raise ValueError("unknown command")


def _reply(kind: str, error: str) -> Reply:
    return Reply(__version__, kind, error)


async def _read(reader: asyncio.StreamReader) -> Question:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > REQUEST_BYTES_MAX:
        raise ValueError("too long")
    return msgspec.json.decode(await reader.readexactly(length), type=Question)


def open_listener(path: str) -> socket.socket:
    """Bind the socket at this path; a stale file of a dead agent is replaced.

    Raise OSError (EADDRINUSE) if a living process listens there. Everyone may connect: the folder's
    mode and the peer's uid decide who sees what.
    """
    if not sys.platform.startswith("linux"):
        raise OSError(errno.EOPNOTSUPP, "commands cannot prove who they are on this system")
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    if _is_stale(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        before = os.umask(0o111)  # 0666 from the beginning
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
