"""Scrape a server with many clients at once, each again after its answer, or at its time."""

from __future__ import annotations

import selectors
import socket
import time

from msgspec import Struct

_REQUEST = (
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Prometheus/2.53.0\r\n"
    b"Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n"
    b"Accept-Encoding: gzip\r\n\r\n"
)


class Load(Struct, frozen=True):
    """What the clients measured."""

    latencies: list[float]
    """Seconds of every answer, including the connect if the server had closed the connection."""
    per_second: float


def scrape(port: int, *, clients: int, seconds: float, every_seconds: float = 0.0) -> Load:
    """Load the server on this port of loopback.

    Each client asks every `every_seconds`, evenly spread; with 0, again after each answer.
    """
    latencies: list[float] = []
    with selectors.DefaultSelector() as selector:
        began = time.perf_counter()
        crowd = [
            _Client(port, selector, began + every_seconds * number / clients, every_seconds)
            for number in range(clients)
        ]
        while (now := time.perf_counter()) - began < seconds:
            waits = [wait for client in crowd if (wait := client.go_on(now)) is not None]
            for key, _ in selector.select(timeout=min(waits, default=1.0)):
                latency = key.data.proceed()
                if latency is not None:
                    latencies.append(latency)
        for key in list(selector.get_map().values()):
            key.data.hang_up()
    return Load(latencies, len(latencies) / (now - began))


class _Client:
    """One connection, kept as long as the server keeps it."""

    def __init__(
        self, port: int, selector: selectors.BaseSelector, due_at: float, every_seconds: float
    ) -> None:
        self._port = port
        self._selector = selector
        self._due_at = due_at
        self._every_seconds = every_seconds
        self._waits = False
        """True if it was answered, and its next request is not due yet."""
        self._connect(time.perf_counter())

    def go_on(self, now: float) -> float | None:
        """Send if it is time; return the seconds until then, None while an answer is pending."""
        if not self._waits:
            return None
        if now < self._due_at:
            return self._due_at - now
        self._asked_at = now
        self._ask()
        return None

    def _connect(self, now: float) -> None:
        """Start to connect without blocking: blocking would make every other client wait too."""
        self._asked_at = now
        self._connected = False
        self._socket = socket.socket()
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect_ex(("127.0.0.1", self._port))
        self._selector.register(self._socket, selectors.EVENT_WRITE, self)

    def proceed(self) -> float | None:
        """Do what the socket is ready for; return the latency when an answer is complete."""
        if self._connected:
            return self._receive()
        self._connected = True
        self._selector.modify(self._socket, selectors.EVENT_READ, self)
        self._ask()
        return None

    def _ask(self) -> None:
        self._waits = False
        self._answer = b""
        self._socket.sendall(_REQUEST)

    def _receive(self) -> float | None:
        data = self._socket.recv(1 << 18)
        self._answer += data
        if data and not _is_whole(self._answer):
            return None
        now = time.perf_counter()
        latency = now - self._asked_at
        if not self._answer.startswith((b"HTTP/1.0 200", b"HTTP/1.1 200")):
            raise RuntimeError(f"the server answered {self._answer[:80]!r}")
        if not data or self._answer.startswith(b"HTTP/1.0"):
            self.hang_up()
            self._connect(now)
        elif self._every_seconds:
            self._due_at = max(self._due_at + self._every_seconds, now)
            self._waits = True
        else:
            self._asked_at = now
            self._ask()
        return latency

    def hang_up(self) -> None:
        self._selector.unregister(self._socket)
        self._socket.close()


def _is_whole(answer: bytes) -> bool:
    head, separator, body = answer.partition(b"\r\n\r\n")
    marker = head.lower().find(b"content-length:")
    if not separator or marker < 0:
        return False
    return len(body) >= int(head[marker + 15 :].split(b"\r\n", 1)[0])
