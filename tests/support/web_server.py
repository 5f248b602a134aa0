"""A real server on a loopback port, and a client that sends exactly the bytes of a test."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any, TypeVar

from exporter.web.connection import Application
from exporter.web.limits import DEFAULT_LIMITS, Limits
from exporter.web.security import WebSecurity
from exporter.web.server import Server, serve

T = TypeVar("T")
DEADLINE_SECONDS = 120.0


class Running:
    """A server whose loop runs in another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        self._loop = loop
        self.server = server
        host, _, port = server.addresses[0].rpartition(":")
        self.address = (host.strip("[]"), int(port))

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_SECONDS)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=DEADLINE_SECONDS)

    def say(self, data: bytes) -> bytes:
        """Return everything the server sends for these bytes, on a half-closed connection."""
        with self.connect() as client:
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # refused before all was sent: the answer is what matters
            return read_to_end(client)

    def get(
        self, path: str, headers: dict[str, str] | None = None, method: str = "GET"
    ) -> tuple[HTTPResponse, bytes]:
        with self.connect() as client:
            client.sendall(request(path, headers, method))
            return receive(client, method)


@contextmanager
def running(
    application: Application,
    limits: Limits = DEFAULT_LIMITS,
    listen: str = "127.0.0.1:0",
    security: WebSecurity | None = None,
) -> Iterator[Running]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        coroutine = serve([listen], application, limits=limits, security=security)
        server = asyncio.run_coroutine_threadsafe(coroutine, loop).result(DEADLINE_SECONDS)
        served = Running(loop, server)
        try:
            yield served
        finally:
            served.call(server.drain(0.0))
            served.call(loop.shutdown_default_executor())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def request(path: str, headers: dict[str, str] | None = None, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode()


def receive(client: socket.socket, method: str = "GET") -> tuple[HTTPResponse, bytes]:
    """Return the one pending response, read by the standard library's own parser."""
    response = HTTPResponse(client, method=method)
    response.begin()
    with response:
        return response, response.read()


def read_to_end(client: socket.socket) -> bytes:
    """Return all bytes until the server closes, in any way."""
    received = b""
    try:
        while data := client.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def status_of(answer: bytes) -> int | None:
    """Return the status of raw bytes, None if nothing was answered."""
    return int(answer.split(b" ", 2)[1]) if answer else None


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)
