"""The HTTP server: how many clients it serves, for how long, and how it stops."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Sequence

import msgspec

from exporter.web.connection import Application, Connection
from exporter.web.limits import DEFAULT_LIMITS, Limits
from exporter.web.listen import BACKLOG, Listener, open_listeners
from exporter.web.response import http_date
from exporter.web.security import WebSecurity
from exporter.web.tls import TlsConnection

_READ_BYTES = 16384
_ACCEPT_AT_A_TIME = 16


class Server:
    """A listening server. `serve` makes it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.read_buffer = memoryview(bytearray(_READ_BYTES))
        self.draining = False
        self.addresses: tuple[str, ...] = ()
        """HOST:PORT or unix:PATH as bound, with the real port if port 0 was asked for."""
        self._listeners: list[tuple[Listener, asyncio.Server]] = []
        self._serving: set[Connection] = set()
        self._leaving: set[Connection] = set()
        self._all_gone = asyncio.Event()
        self._sweep_seconds = min(1.0, limits.linger_seconds / 2, limits.request_seconds / 2)
        self._sweeper: asyncio.TimerHandle | None = None
        self._date = ""
        self._date_second = 0

    async def listen(
        self, listener: Listener, application: Application, security: WebSecurity | None
    ) -> None:
        """Start to accept on a socket."""

        def accept() -> asyncio.BaseProtocol:
            if security is None or not security.speaks_tls:
                return Connection(self, application)
            contexts = security.tls_contexts()
            connection = Connection(
                self, application, outdated=lambda: security.tls_contexts() is not contexts
            )
            return TlsConnection(connection, contexts, self.loop)

        self.addresses += (listener.address,)
        # asyncio accepts `backlog` connections at a time, some turns of the loop before `admit` is
        # asked about them. Many at a time use up all descriptors, and then asyncio writes a
        # traceback for each and accepts nothing for a second.
        at_a_time = max(1, min(_ACCEPT_AT_A_TIME, self.limits.connections // 32))
        create = self.loop.create_unix_server if listener.path else self.loop.create_server
        accepting = await create(accept, sock=listener.socket, backlog=at_a_time)
        listener.socket.listen(BACKLOG)  # asyncio has made the kernel's queue as short as that
        self._listeners.append((listener, accepting))

    async def drain(self, grace_seconds: float = 5.0) -> None:
        """Accept no more and finish the responses under way; reset what is not done in time."""
        self.draining = True
        for listener, accepting in self._listeners:
            if accepting.is_serving():  # not at a second drain: its socket is closed
                self.loop.remove_reader(listener.socket)
        # asyncio makes a connection of what it accepted in the next turn of the loop. Once its
        # server is closed it cannot, and leaves the socket open. Requests that are in their sockets
        # already are read then, too.
        for _ in range(3):
            await asyncio.sleep(0)
        for listener, accepting in self._listeners:
            accepting.close()
            listener.remove()
        for connection in [each for each in self._serving if each.idle]:
            connection.make_room()
        try:
            async with asyncio.timeout(grace_seconds):
                await self._gone()
        except TimeoutError:
            for connection in [*self._serving, *self._leaving]:
                connection.abort()
            await self._gone()
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def _gone(self) -> None:
        while self._serving or self._leaving:
            self._all_gone.clear()
            await self._all_gone.wait()

    # What connections call.

    def admit(self, connection: Connection) -> bool:
        """Take a new connection in; when all places are taken, the one that has been inactive
        longest gives way to it.

        So thousands of clients that send nothing, or read nothing, cannot keep a scraper out.
        """
        if self._sweeper is None:
            self._sweeper = self.loop.call_later(self._sweep_seconds, self._sweep)
        if len(self._serving) >= self.limits.connections:
            inactive = self._longest_inactive()
            if inactive is None:
                return False
            inactive.make_room()
        self._serving.add(connection)
        return True

    def leaving(self, connection: Connection) -> bool:
        """Free the place of a connection; True if it may wait for its client to stop sending."""
        self._serving.discard(connection)
        self._leaving.add(connection)
        return len(self._leaving) <= max(1, self.limits.connections // 4)

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is closed."""
        self._serving.discard(connection)
        self._leaving.discard(connection)
        if not self._serving and not self._leaving:
            self._all_gone.set()

    def date(self) -> str:
        """Return the current time for the Date header."""
        now = int(time.time())
        if now != self._date_second:
            self._date_second, self._date = now, http_date(now)
        return self._date

    def _longest_inactive(self) -> Connection | None:
        """Return the connection whose client has left us waiting longest: for its request, or to
        take its response. Whose address it has does not matter.

        One that was served and is idle counts too: a scraper connects anew for its next request.
        """
        waiting = (
            (since, each) for each in self._serving if (since := each.inactive_since) is not None
        )
        return min(waiting, key=lambda pair: pair[0], default=(0.0, None))[1]

    def _sweep(self) -> None:
        """End connections past their deadline; one timer for all costs a request nothing."""
        self._sweeper = None
        if not self._serving and not self._leaving:
            return
        # The next sweep first: should one connection fail here, the others keep their deadlines.
        self._sweeper = self.loop.call_later(self._sweep_seconds, self._sweep)
        now = self.loop.time()
        for connection in [*self._serving, *self._leaving]:
            if connection.deadline <= now:
                connection.expire()


async def serve(
    addresses: Sequence[str],
    application: Application,
    *,
    limits: Limits = DEFAULT_LIMITS,
    security: WebSecurity | None = None,
) -> Server:
    """Start a server in the running loop; `drain` ends it.

    It listens on the sockets that a service manager has opened, or else on the addresses.
    """
    server = Server(_affordable(limits))
    for listener in open_listeners(addresses):
        guarded = application
        if security is not None:
            guarded = security.guard(application, loopback=listener.loopback)
        await server.listen(listener, guarded, security)
    return server


def _affordable(limits: Limits) -> Limits:
    """Allow at most half as many connections as this process may open descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return limits
    affordable = min(limits.connections, max(16, descriptors // 2))
    return msgspec.structs.replace(limits, connections=affordable)
