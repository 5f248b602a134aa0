"""Hostile clients at a real agent: scrapes go on, and what the clients took comes back."""

from __future__ import annotations

import http.client
import itertools
import os
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real.agent import Agent, agent
from tests.real.waiting import wait_until
from tests.support.certificates import Authority
from tests.support.small_homes import small_home
from tests.web.test_request import MALFORMED
from tests.web.test_tls import HELLO

LEFT_BYTES = 48 << 20
"""What an interpreter may keep of memory that it has freed."""


@dataclass(frozen=True)
class Size:
    """How many of each kind attack."""

    never_reading: int
    slow: int
    idle: int
    header_bytes: int
    pipelines: int
    random: int
    at_once: int
    """How many connect until a scrape has been answered: on a busy machine more than the agent has
    places for could connect before it has answered one, and push that one out."""


SHORT = Size(
    never_reading=96,
    slow=96,
    idle=300,
    header_bytes=4 << 20,
    pipelines=3,
    random=40,
    at_once=16,
)
FULL = Size(
    never_reading=560,
    slow=600,
    idle=5000,
    header_bytes=100 << 20,
    pipelines=50,
    random=2000,
    at_once=10_000,
)


class Attack:
    """Connects as hostile clients do; whatever becomes of a connection, the next one comes."""

    def __init__(
        self,
        port: int,
        stack: ExitStack,
        context: ssl.SSLContext | None,
        before_next: Callable[[], None] = lambda: None,
    ) -> None:
        self._port = port
        self._stack = stack
        self._context = context
        self._before_next = before_next

    def plain(self) -> socket.socket:
        self._before_next()
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(30)
        self._stack.enter_context(client).connect(("127.0.0.1", self._port))
        return client

    def client(self) -> socket.socket:
        """A connection that can be asked: through TLS if the agent speaks it."""
        client = self.plain()
        if self._context is None:
            return client
        return self._stack.enter_context(
            self._context.wrap_socket(client, server_hostname="localhost")
        )

    def each(self, count: int, act: Callable[[int], None]) -> None:
        for number in range(count):
            try:
                act(number)
            except OSError:
                pass  # refused, reset or shut: that is the agent's right


def asked(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def never_reading(attack: Attack, size: Size) -> None:
    """More metrics than the kernel buffers, or some pages, which the agent has to make first."""
    wanted = (asked("/metrics") * 400, asked("/") * 2, asked("/sessions") * 2)
    attack.each(
        size.never_reading, lambda number: attack.client().sendall(wanted[number % len(wanted)])
    )


def slow(attack: Attack, size: Size) -> None:
    clients: list[socket.socket] = []

    def begin(_: int) -> None:
        clients.append(attack.client())
        clients[-1].sendall(b"GET /metrics HTTP/1.1\r\n")

    attack.each(size.slow, begin)
    for _ in range(3):
        attack.each(len(clients), lambda number: clients[number].sendall(b"X: y\r\n"))


def idle(attack: Attack, size: Size) -> None:
    attack.each(size.idle, lambda _: attack.plain().settimeout(1))


def endless_headers(attack: Attack, size: Size) -> None:
    """As many connections as it takes to send so much; each is cut off."""
    sent = 0
    block = b"X: " + b"y" * 8000 + b"\r\n"
    while sent < size.header_bytes:
        try:
            client = attack.client()
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
            while sent < size.header_bytes:
                client.sendall(block)
                sent += len(block)
        except OSError:
            pass
        sent += len(block)  # in any case this ends


def pipelined(attack: Attack, size: Size) -> None:
    def flood(_: int) -> None:
        client = attack.client()
        client.settimeout(0.2)
        client.sendall(asked("/-/healthy") * 20_000)

    attack.each(size.pipelines, flood)


def smuggled(attack: Attack, _size: Size) -> None:
    shapes = [bytes(each) for each in MALFORMED]
    attack.each(len(shapes), lambda number: attack.client().sendall(shapes[number] * 3))


def random_bytes(attack: Attack, size: Size) -> None:
    def send(number: int) -> None:
        client = attack.plain() if number % 2 else attack.client()
        client.sendall(os.urandom(500))

    attack.each(size.random, send)


def stalled_handshakes(attack: Attack, size: Size) -> None:
    """Without TLS this is a request that never ends."""
    attack.each(size.slow, lambda number: attack.plain().sendall(HELLO[: 1 + number % len(HELLO)]))


ATTACKS = (
    never_reading,
    slow,
    idle,
    endless_headers,
    pipelined,
    smuggled,
    random_bytes,
    stalled_handshakes,
)


class Scraper:
    """Scrapes again and again, with a new connection each time, as long as it runs."""

    def __init__(self, port: int, context: ssl.SSLContext | None, pause_seconds: float) -> None:
        self._port = port
        self._context = context
        self._pause_seconds = pause_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answers = 0
        self.failures: list[str] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
            self.more(2)
        finally:
            self._over.set()
            self._thread.join()

    def more(self, count: int) -> None:
        """Return after so many more scrapes."""
        enough = self.answers + count
        wait_until(lambda: self.answers >= enough or self.failures, "more scrapes")

    def pace(self, at_once: int) -> Callable[[], None]:
        """Return what lets so many go on until the next scrape is answered."""
        numbers = itertools.count(1)

        def go_on() -> None:
            if next(numbers) % at_once == 0:
                self.more(1)

        return go_on

    def scrape(self) -> int:
        connection: http.client.HTTPConnection
        if self._context is None:
            connection = http.client.HTTPConnection("localhost", self._port, timeout=10)
        else:
            connection = http.client.HTTPSConnection(
                "localhost", self._port, timeout=10, context=self._context
            )
        try:
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                status = self.scrape()
                if status != 200:
                    self.failures.append(str(status))
                self.answers += 1
            except OSError as error:
                self.failures.append(repr(error))
            self._over.wait(self._pause_seconds)


def resident_bytes(pid: int) -> int:
    words = Path(f"/proc/{pid}/statm").read_text().split()
    return int(words[1]) * os.sysconf("SC_PAGESIZE")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextmanager
def agent_to_attack(
    tmp_path: Path, *, tls: bool, wrapper: tuple[str, ...]
) -> Iterator[tuple[Agent, int, ssl.SSLContext | None]]:
    home = small_home(tmp_path / "home", sessions=200)
    flags: tuple[str, ...] = ()
    context = None
    if tls:
        Authority(tmp_path).issue("server", "DNS:localhost")
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.crt"))
        (tmp_path / "web.yml").write_text(
            "tls_server_config: {cert_file: server.crt, key_file: server.key}\n"
        )
        flags = ("--web.config.file", str(tmp_path / "web.yml"))
    with agent(tmp_path, [home], *flags, ready=False, wrapper=wrapper) as running:
        yield running, int(running.address.rpartition(":")[2]), context


def withstand(
    tmp_path: Path, size: Size, *, tls: bool, pause_seconds: float, wrapper: tuple[str, ...] = ()
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, size.idle + 2000)), hard))
    try:
        with agent_to_attack(tmp_path, tls=tls, wrapper=wrapper) as (running, port, context):
            scraper = Scraper(port, context, pause_seconds)
            wait_until(lambda: scraper.scrape() == 200, "the first scan is done")
            for path in ("/metrics", "/", "/sessions"):  # what pages load is not to be counted
                with ExitStack() as stack:
                    client = Attack(port, stack, context).client()
                    client.sendall(asked(path))
                    client.recv(100)
            wait_until(lambda: scraper.scrape() == 200, "the agent is at rest")
            before_bytes, before_descriptors = resident_bytes(running.pid), descriptors(running.pid)
            with scraper.at_work():
                for attack in ATTACKS:
                    with ExitStack() as stack:
                        attack(Attack(port, stack, context, scraper.pace(size.at_once)), size)
                        scraper.more(2)  # while the clients hold on to what they have
                        assert scraper.failures == [], attack.__name__
            assert scraper.failures == []
            wait_until(
                lambda: descriptors(running.pid) <= before_descriptors + 2, "descriptors come back"
            )
            assert resident_bytes(running.pid) <= before_bytes + LEFT_BYTES
            assert "Traceback" not in running.log()
            assert "request failed" not in running.log()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_hostile_clients_hold_up_no_scrape(tmp_path: Path, tls: bool) -> None:
    """With few descriptors, so that few clients are enough to take all places."""
    few = ("prlimit", "--nofile=160:160")
    withstand(tmp_path, SHORT, tls=tls, pause_seconds=0.05, wrapper=few)


@pytest.mark.full
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_many_hostile_clients_hold_up_no_scrape(tmp_path: Path, tls: bool) -> None:
    withstand(tmp_path, FULL, tls=tls, pause_seconds=1.0)
