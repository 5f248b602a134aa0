"""TLS below a connection: to the connection it is a transport, to the socket a protocol.

asyncio has TLS of its own, but it tells the server of a connection only when the handshake is done,
and takes 256 KiB for each. Thousands of clients that never finish their handshake would take all
descriptors, and no limit of ours would see them. Here a connection exists from its first moment:
the handshake is part of the time for its first request, and it gives way as any other.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import Any, Protocol, cast

from exporter.web.client_hello import offered_groups
from exporter.web.response import TEXT
from exporter.web.tls_context import TlsContexts

_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"OPTIONS ", b"DELETE ", b"CONNECT ", b"PRI ")
_RUNBOOK_LINK = re.compile(
    rb"GET (/runbooks/[A-Za-z.]{0,80}) HTTP/1\.1\r\n"
    rb"(?:[^\r]*\r\n)*?host: *([-A-Za-z0-9.:\[\]]+)\r\n",
    re.IGNORECASE,
)
_PLAIN_HTTP = b"this port speaks HTTPS; ask for https://\n"
_PLAIN_ANSWER = (
    b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\n"
    b"Content-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
) % (TEXT.encode(), len(_PLAIN_HTTP), _PLAIN_HTTP)

_REDIRECT = (
    b"HTTP/1.1 307 Temporary Redirect\r\nLocation: https://%b%b\r\n"
    b"Connection: close\r\nContent-Length: 0\r\n\r\n"
)


class Upper(Protocol):
    """What stands on the TLS layer: a `Connection`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class TlsConnection(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection; without contexts the client is refused."""

    def __init__(
        self, upper: Upper, contexts: TlsContexts | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__()
        self._upper = upper
        self._contexts = contexts
        self._loop = loop
        self._below: asyncio.Transport | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._hello = b""
        """What has come before the context was chosen."""
        self._established = False
        self._closing = False
        self._paused = False
        """The connection above reads nothing for now."""
        self._reading_scheduled = False

    # What the socket's transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        self._upper.connection_made(self)
        if self._contexts is None:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._below = None
        self._closing = True
        self._upper.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._upper.get_buffer(sizehint)  # it is copied before the one above uses it again

    def buffer_updated(self, nbytes: int) -> None:
        received = self._upper.get_buffer(nbytes)[:nbytes]
        if self._tls is None:
            self._begin(bytes(received))
        else:
            self._incoming.write(received)
        self._advance()

    def eof_received(self) -> bool:
        return False  # the transport below is closed

    def pause_writing(self) -> None:
        self._upper.pause_writing()

    def resume_writing(self) -> None:
        self._upper.resume_writing()

    # What the connection above calls.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._below is None else self._below.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._below is not None:
            self._below.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._paused = True
        if self._below is not None:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._below is None:
            return
        self._below.resume_reading()
        if not self._reading_scheduled:  # part of what was read may wait in here
            self._reading_scheduled = True
            self._loop.call_soon(self._read_on)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._tls is None or not self._established or self._closing:
            return  # nothing can be said before the handshake is done
        view = memoryview(data)
        try:
            while view:
                view = view[self._tls.write(view) :]
        except ssl.SSLError:
            self.abort()
            return
        self._flush()

    def can_write_eof(self) -> bool:
        return self._established

    def write_eof(self) -> None:
        """Tell the client that no more follows; what it still sends is read and dropped."""
        self._say_goodbye()
        if self._below is not None and self._below.can_write_eof():
            self._below.write_eof()

    def close(self) -> None:
        self._say_goodbye()
        self._closing = True
        if self._below is not None:
            self._below.close()

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        self._closing = True
        if self._below is not None:
            self._below.abort()

    # Handshake, and what comes after it.

    def _begin(self, received: bytes) -> None:
        """Choose the context; it takes the whole first message to know what the client offers."""
        if self._contexts is None:
            return
        self._hello += received
        groups: tuple[int, ...] | None = ()
        if self._contexts.needs_hello and not self._hello.startswith(_METHODS):
            groups = offered_groups(self._hello)
            if groups is None:
                return
        context = self._contexts.choose(groups or ())
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(self._hello)

    def _advance(self) -> None:
        if self._tls is None or self._closing:
            return
        if not self._established and not self._shake_hands(self._tls):
            return
        self._read(self._tls)

    def _shake_hands(self, tls: ssl.SSLObject) -> bool:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except (ssl.SSLError, ValueError):
            self._refuse()
            return False
        if self._contexts is None or not self._contexts.allows(tls):
            self.abort()
            return False
        self._flush()
        self._hello = b""
        self._established = True
        return True

    def _refuse(self) -> None:
        """Send the reason that TLS has for it, or one that a client without TLS understands.

        The link of an alert cannot know that the agent speaks TLS, so it is led on. Nothing else
        is: a scraper that follows would have sent its password in the clear.
        """
        if self._hello.startswith(_METHODS) and self._below is not None:
            link = _RUNBOOK_LINK.match(self._hello)
            self._below.write(_REDIRECT % (link[2], link[1]) if link else _PLAIN_ANSWER)
        else:
            self._flush()
        self._closing = True
        if self._below is not None:
            self._below.close()

    def _read_on(self) -> None:
        self._reading_scheduled = False
        if self._established and not self._closing and self._tls is not None:
            self._read(self._tls)

    def _read(self, tls: ssl.SSLObject) -> None:
        while not self._paused and not self._closing:
            buffer = self._upper.get_buffer(-1)
            try:
                count = cast(int, tls.read(len(buffer), cast(Any, buffer)))
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:  # the client has said goodbye, or what it sent is no TLS
                self._flush()
                self.close()
                return
            if not count:
                self.close()
                return
            self._upper.buffer_updated(count)
        self._flush()

    def _say_goodbye(self) -> None:
        if self._tls is None or not self._established or self._closing:
            return
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # the answer of the client is not waited for
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and self._below is not None:
            self._below.write(self._outgoing.read())
