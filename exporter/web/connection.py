"""The connection of one client: it reads requests and writes responses, within the limits.

    WAITING ──request──▶ WORKING ──response─▶ SENDING ──taken──▶ WAITING
       └───────────refused, or asked to close───────┴──────────▶ LEAVING

It answers one request at a time, and reads only while it is WAITING. So a client that sends many
requests and takes no responses fills its own socket, not our memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum, auto
from typing import Protocol, cast

from exporter import logs
from exporter.web.limits import Limits
from exporter.web.request import Request, RequestError, find_head_end, parse_head
from exporter.web.response import CHUNK_BYTES, Response, message

_log = logs.get("web")

_LINGER_BYTES = 1 << 20
"""How much a refused client may still send before its connection is reset."""


class Application(Protocol):
    """Answers requests: at once, or with an awaitable if that takes time."""

    def respond(self, request: Request) -> Response | Awaitable[Response]: ...


class ServerSide(Protocol):
    """What a connection needs from its server."""

    limits: Limits
    loop: asyncio.AbstractEventLoop
    read_buffer: memoryview
    draining: bool

    def admit(self, connection: Connection) -> bool: ...
    def leaving(self, connection: Connection) -> bool: ...
    def forget(self, connection: Connection) -> None: ...
    def date(self) -> str: ...


class ConnectionState(Enum):
    WAITING = auto()
    """For a request, or for the rest of one."""
    WORKING = auto()
    """The application makes the response."""
    SENDING = auto()
    """The client has not yet taken the whole response."""
    LEAVING = auto()
    """What the client still sends is dropped, until the connection is closed."""


class Connection(asyncio.BufferedProtocol):
    """All connections read into one buffer of the server, so an idle one takes little memory."""

    def __init__(
        self,
        server: ServerSide,
        application: Application,
        outdated: Callable[[], bool] | None = None,
    ) -> None:
        """`outdated` returns True once the TLS settings have changed since the client connected."""
        self._server = server
        self._application = application
        self._outdated = outdated
        self._client = ""
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._searched = 0
        """How many bytes of `_received` were already searched for the end of a head."""
        self._request: Request | None = None
        """A request whose body is not complete yet."""
        self._begun = True
        """True if `deadline` is that of a request, False if that of an idle connection."""
        self._continued = False
        """True if the client was told to send the body (100 Continue)."""
        self._keep_alive = True
        self._pieces: Iterator[bytes | memoryview] = iter(())
        """The rest of the response, not sent yet."""
        self._stepping = False
        """True if a `_step` is scheduled."""
        self._discarded = 0
        self._task: asyncio.Task[None] | None = None
        self.state = ConnectionState.WAITING
        self.stalled_since: float | None = None
        """Since when the client has not taken our last bytes; None if it has taken all."""
        self.waiting_since = server.loop.time()
        self.deadline = self.waiting_since + server.limits.request_seconds

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # With these limits `resume_writing` means that everything is sent. The upper limit is 1,
        # because with 0 an empty buffer would count as full under TLS.
        self._transport.set_write_buffer_limits(high=1, low=0)
        peer = self._transport.get_extra_info("peername")
        self._client = peer[0] if isinstance(peer, tuple) else ""
        if not self._server.admit(self):
            self._refuse(message(503, "too many connections", ("Retry-After", "1")))

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._pieces = iter(())
        self._server.forget(self)

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.state is ConnectionState.LEAVING:
            self._discard(nbytes)
            return
        self._received += bytes(self._server.read_buffer[:nbytes])
        if self.state is ConnectionState.WAITING:
            self._serve()

    def pause_writing(self) -> None:
        self.stalled_since = self._server.loop.time()

    def resume_writing(self) -> None:
        self.stalled_since = None
        self._schedule_step()

    # What the server calls.

    def expire(self) -> None:
        """End the connection, because its deadline has passed."""
        if self._transport is None:
            return
        if self.state is not ConnectionState.WAITING:
            self._transport.abort()
        elif self._received or self._request:
            self._refuse(message(408, "the request took too long"))
        else:
            self._leave()

    def make_room(self) -> None:
        """End the connection, because another needs its place or the server stops."""
        if self.state is not ConnectionState.WAITING:
            self.state = ConnectionState.LEAVING
            self._server.leaving(self)  # before it is closed, so that its place is free at once
            self.abort()
        elif self._received or self._request:
            self._refuse(message(503, "too many connections", ("Retry-After", "1")))
        else:
            self._leave()

    @property
    def inactive_since(self) -> float | None:
        """Since when the client has left us waiting; None while a response is made or taken."""
        if self.state is ConnectionState.WAITING:
            return self.waiting_since
        return self.stalled_since

    @property
    def idle(self) -> bool:
        """True if no byte of a request has arrived."""
        return (
            self.state is ConnectionState.WAITING and not self._received and self._request is None
        )

    def abort(self) -> None:
        """Reset the connection."""
        if self._transport is not None:
            self._transport.abort()

    # Requests.

    def _serve(self) -> None:
        """Answer one request if a complete one has arrived."""
        try:
            request = self._next_request()
        except RequestError as error:
            self._refuse(message(error.status, error.reason))
            return
        if request is not None:
            self._work(request)
        elif not self._begun and not self.idle:
            self._begun = True
            self.deadline = self._server.loop.time() + self._server.limits.request_seconds

    def _next_request(self) -> Request | None:
        request = self._request or self._find_request()
        if request is None:
            return None
        if len(self._received) < request.body_bytes:
            if request.expects_continue and not self._continued:
                self._continued = True
                self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        self._received = self._received[request.body_bytes :]
        self._request, self._continued = None, False
        return request

    def _find_request(self) -> Request | None:
        if not self._searched:
            # Some clients send a line break after a body, which is part of no request.
            self._received = self._received.removeprefix(b"\r\n")
            if self._received == b"\r":
                return None  # it may be the first half of such a line break
        end = find_head_end(self._received, self._searched, self._server.limits)
        if end is None:
            self._searched = len(self._received)
            return None
        self._request = parse_head(self._received[:end], self._server.limits, self._client)
        self._received = self._received[end + 4 :]  # after the empty line that ends the head
        self._searched = 0
        return self._request

    def _work(self, request: Request) -> None:
        self.state = ConnectionState.WORKING
        try:
            answer = self._application.respond(request)
        except Exception as error:  # noqa: BLE001 - one failing page must not end the server
            self._answer(request, _failed(request, error))
            return
        if isinstance(answer, Response):
            self._answer(request, answer)
        else:
            self._pause_reading()
            self._task = self._server.loop.create_task(self._answer_later(request, answer))

    async def _answer_later(self, request: Request, answer: Awaitable[Response]) -> None:
        try:
            response = await answer
        except Exception as error:  # noqa: BLE001 - as above
            response = _failed(request, error)
        self._task = None
        self._answer(request, response)

    # Responses.

    def _answer(self, request: Request, response: Response) -> None:
        self.state = ConnectionState.SENDING
        self._keep_alive = (
            request.keep_alive
            and not self._server.draining
            and not (self._outdated is not None and self._outdated())
        )
        head = response.head(self._server.date(), "keep-alive" if self._keep_alive else "close")
        body = response.body
        if request.method == "HEAD":
            self._write(head)
        elif isinstance(body, bytes) and len(body) <= CHUNK_BYTES:
            self._write(head + body)
        else:
            self._pieces = response.pieces()
            self._write(head + next(self._pieces, b""))
            self._pause_reading()
            self._schedule_step()
            return
        if self.stalled_since is None:
            self._sent()
        else:
            self._pause_reading()

    def _schedule_step(self) -> None:
        """Go on in the next turn of the loop, so that other connections are served in between."""
        if not self._stepping and self.stalled_since is None:
            self._stepping = True
            self._server.loop.call_soon(self._step)

    def _step(self) -> None:
        self._stepping = False
        if self._transport is None or self.stalled_since is not None:
            return
        if self.state is ConnectionState.SENDING:
            self._send_piece()
        elif self.state is ConnectionState.WAITING and self._received:
            self._transport.resume_reading()
            self._serve()

    def _send_piece(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            self._sent()
        else:
            self._pause_reading()
            self._write(piece)
            self._schedule_step()

    def _sent(self) -> None:
        """Go on to the next request, which may have arrived already."""
        if self._transport is None:
            return
        if not self._keep_alive:
            self._leave()
            return
        self.state = ConnectionState.WAITING
        self._begun = False
        self.waiting_since = self._server.loop.time()
        self.deadline = self.waiting_since + self._server.limits.idle_seconds
        if self._received:
            self._transport.pause_reading()
            self._schedule_step()
        else:
            self._transport.resume_reading()

    def _pause_reading(self) -> None:
        """Read nothing while a response is made or sent."""
        self.deadline = self._server.loop.time() + self._server.limits.response_seconds
        if self._transport is not None:
            self._transport.pause_reading()

    def _write(self, data: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(data)

    # The end.

    def _refuse(self, response: Response) -> None:
        self._received, self._request = b"", None
        self._write(response.head(self._server.date(), "close") + b"".join(response.pieces()))
        self._leave(lingering=True)

    def _leave(self, *, lingering: bool = False) -> None:
        """Close the connection; if the client may still be sending, only after it has stopped.

        Closing a socket with unread data resets the connection. The client would then lose the
        response that says what was wrong.
        """
        transport = self._transport
        self.state = ConnectionState.LEAVING
        self.deadline = self._server.loop.time() + self._server.limits.linger_seconds
        may_linger = self._server.leaving(self)
        if transport is None:
            return
        lingering = lingering or bool(self._received)
        self._received = b""
        if lingering and may_linger and _end_writing(transport):
            transport.resume_reading()
        else:
            transport.close()

    def _discard(self, nbytes: int) -> None:
        self._discarded += nbytes
        if self._discarded > _LINGER_BYTES:
            self.abort()


def _end_writing(transport: asyncio.Transport) -> bool:
    """Tell the client that no more follows, but keep reading; False if that is not possible."""
    if not transport.can_write_eof():
        return False
    try:
        transport.write_eof()
    except OSError:  # the client has reset the connection, and asyncio has not noticed yet
        return False
    return True


def _failed(request: Request, error: Exception) -> Response:
    _log.error("request failed", path=request.path, error=f"{type(error).__name__}: {error}")
    return message(500, "internal error; see the log of hermes-exporter")
