"""The server keeps answering, whatever its clients do."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from email.utils import formatdate
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.errors import ExporterError
from exporter.web.limits import Limits
from exporter.web.request import Request
from exporter.web.response import Packed, Response, http_date, message, pack
from exporter.web.server import serve
from tests.support.web_server import (
    DEADLINE_SECONDS,
    Running,
    eventually,
    read_to_end,
    receive,
    request,
    running,
    status_of,
)
from tests.web.test_request import MALFORMED, REFUSED

LARGE = bytes(range(256)) * 80_000
"""20 MB: more than the kernel takes for a client that does not read."""
LARGE_PACKED = pack([LARGE])


class Pages:
    """An application with a page for each kind of answer."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.paths: list[str] = []

    def respond(self, asked: Request) -> Response | asyncio.Future[Response]:
        self.paths.append(asked.path)
        if asked.path == "/slow":
            return asyncio.ensure_future(self.later())
        if asked.path == "/broken":
            raise RuntimeError("broken page")
        if asked.path == "/broken-later":
            return asyncio.ensure_future(self.break_later())
        bodies: dict[str, bytes | Packed] = {"/large": LARGE, "/packed": LARGE_PACKED}
        return Response(200, bodies.get(asked.path, asked.path.encode()))

    async def later(self) -> Response:
        await asyncio.to_thread(self.release.wait, 100)
        return message(200, "at last")

    async def break_later(self) -> Response:
        raise RuntimeError("broken page")


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    with running(Pages()) as server:
        yield server


def connections(server: Running) -> int:
    return len(server.server._serving) + len(server.server._leaving)


# Connections and their requests.


def test_a_connection_serves_many_requests(served: Running) -> None:
    with served.connect() as client:
        for path in ("/one", "/two", "/large", "/packed", "/three"):
            client.sendall(request(path))
            response, body = receive(client)
            assert response.getheader("Connection") == "keep-alive"
            assert body == (LARGE if path in ("/large", "/packed") else path.encode())


def test_answers_leave_at_once(served: Running) -> None:
    with served.connect() as client:
        client.sendall(request("/one"))
        receive(client)
        (peer,) = (
            each._transport.get_extra_info("socket")
            for each in served.server._serving
            if each._transport is not None
            and each._transport.get_extra_info("peername") == client.getsockname()
        )
        assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_pipelined_requests_are_answered_in_order(served: Running) -> None:
    paths = [f"/{number}" for number in range(300)]
    with served.connect() as client:
        client.sendall(b"".join(request(path) for path in paths))
        client.shutdown(socket.SHUT_WR)
        answers = read_to_end(client).split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert [answer.partition(b"\r\n\r\n")[2].decode() for answer in answers] == paths


def test_pipelined_requests_before_a_half_close_are_answered(served: Running) -> None:
    answer = served.say(request("/one") + request("/large") + request("/two"))
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert answer.endswith(b"/two")


def test_a_client_that_asks_and_does_not_read_is_held_back() -> None:
    """Its requests wait in its own socket, not in our memory, and no other client waits."""
    pages = Pages()
    with running(pages) as server, server.connect() as client:
        eventually(lambda: connections(server) == 1)
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.sendall(request("/large") * 1_000_000)
        assert len(pages.paths) < 10
        assert len(next(iter(server.server._serving))._received) < 65536
        assert server.get("/other")[1] == b"/other"


def test_a_request_may_come_byte_by_byte(served: Running) -> None:
    with served.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request("/one"):
            client.sendall(bytes([byte]))
        assert receive(client)[1] == b"/one"


def test_close_when_asked_and_for_old_clients(served: Running) -> None:
    with served.connect() as client:
        client.sendall(request("/one", {"Connection": "close"}))
        assert b"\r\nConnection: close\r\n" in read_to_end(client)
    with served.connect() as client:
        client.sendall(b"GET /one HTTP/1.0\r\n\r\n")
        answer = read_to_end(client)
        assert status_of(answer) == 200
        assert answer.endswith(b"/one")


def test_nothing_is_answered_after_a_close(served: Running) -> None:
    answer = served.say(request("/one", {"Connection": "close"}) + request("/two"))
    assert answer.endswith(b"/one")


def test_an_old_client_can_keep_its_connection(served: Running) -> None:
    with served.connect() as client:
        for _ in range(2):
            client.sendall(b"GET /one HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            response, _ = receive(client)
            assert response.getheader("Connection") == "keep-alive"


def test_a_small_body_is_dropped_and_the_next_request_found(served: Running) -> None:
    body = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    first = request("/one", {"Content-Length": str(len(body))}, "POST")
    answer = served.say(first + body + b"\r\n" + request("/two"))
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert b"/smuggled" not in answer


def test_a_line_break_after_a_body_may_come_in_two_parts(served: Running) -> None:
    with served.connect() as client:
        client.sendall(request("/one", {"Content-Length": "4"}, "POST") + b"body")
        assert receive(client)[1] == b"/one"
        client.sendall(b"\r")
        eventually(lambda: any(each._received == b"\r" for each in list(served.server._serving)))
        client.sendall(b"\n" + request("/two"))
        assert receive(client)[1] == b"/two"


def test_a_client_that_waits_for_continue_is_told_to(served: Running) -> None:
    with served.connect() as client:
        client.sendall(request("/one", {"Content-Length": "4", "Expect": "100-continue"}, "POST"))
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"body")
        assert receive(client)[1] == b"/one"


def test_continue_is_not_said_when_the_body_is_there(served: Running) -> None:
    head = request("/one", {"Content-Length": "4", "Expect": "100-continue"}, "POST")
    assert served.say(head + b"body").startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("path", ["/broken", "/broken-later"])
def test_a_page_that_fails_is_a_500_and_no_more(
    served: Running, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served.connect() as client:
        client.sendall(request(path))
        response, body = receive(client)
        assert response.status == 500
        assert b"broken page" not in body
        client.sendall(request("/one"))
        assert receive(client)[0].status == 200
    assert "request failed" in caplog.text


# Requests that are refused.


@pytest.mark.parametrize("data", MALFORMED)
def test_a_malformed_request_is_refused_and_the_connection_closed(
    served: Running, data: bytes
) -> None:
    answer = served.say(data + request("/after"))
    assert status_of(answer) == 400
    assert b"\r\nConnection: close\r\n" in answer
    assert answer.count(b"\r\nDate: ") == 1


@pytest.mark.parametrize(("data", "status"), REFUSED)
def test_too_much_is_refused_with_its_status(served: Running, data: bytes, status: int) -> None:
    assert status_of(served.say(data)) == status


def test_a_client_still_sending_can_read_why_it_was_refused(served: Running) -> None:
    """Half a megabyte of headers: closing at once would reset the connection and lose the 431."""
    with served.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 500_000)
        assert status_of(read_to_end(client)) == 431


def test_endless_headers_are_cut_off(served: Running) -> None:
    with served.connect() as client, pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
        client.sendall(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000_000)


@settings(max_examples=150)
@given(data=st.binary(min_size=1, max_size=200))
def test_garbage_gets_a_4xx_or_nothing(served: Running, data: bytes) -> None:
    status = status_of(served.say(data))
    assert status is None or 400 <= status < 500


@settings(max_examples=150)
@given(position=st.integers(0, len(request("/one")) - 1), byte=st.integers(0, 255))
def test_one_wrong_byte_never_breaks_the_server(served: Running, position: int, byte: int) -> None:
    """A changed byte may leave a valid request, with another path say; else it is refused."""
    data = bytearray(request("/one"))
    data[position] = byte
    status = status_of(served.say(bytes(data)))
    assert status is None or status == 200 or 400 <= status < 500


BODY = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n\x00\n"
WELL_FORMED = [
    request("/one"),
    request("/one", method="HEAD"),
    request("/one", {"Content-Length": str(len(BODY))}, "POST") + BODY,
    request("/one", {"Content-Length": "2"}, "PUT") + b"\r\n" + b"\r\n",
    b"GET /one HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
]


@settings(max_examples=150)
@given(
    asked=st.lists(st.sampled_from(WELL_FORMED), max_size=5),
    bad=st.sampled_from(MALFORMED),
    cuts=st.lists(st.integers(1, 500), max_size=8),
)
def test_the_pieces_a_stream_comes_in_change_no_answer(
    served: Running, asked: list[bytes], bad: bytes, cuts: list[int]
) -> None:
    """Each request before the malformed one is answered, and nothing after it."""
    stream = b"".join(asked) + bad + request("/after")
    edges = [0, *sorted(cuts), len(stream)]
    with served.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for start, end in pairwise(edges):
                client.sendall(stream[start:end])
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused before all was sent
        answers = read_to_end(client)
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", answers)]
    assert statuses == [200] * len(asked) + [400]


# Clients that take their time.


def test_half_a_request_is_told_that_time_is_up() -> None:
    with running(Pages(), Limits(request_seconds=2)) as server, server.connect() as client:
        client.sendall(b"GET /one HTTP/1.1\r\nHost:")
        assert status_of(read_to_end(client)) == 408


def test_a_header_now_and_then_does_not_gain_time() -> None:
    """The slowloris attack."""
    with running(Pages(), Limits(request_seconds=2)) as server, server.connect() as client:
        client.sendall(b"GET /one HTTP/1.1\r\nHost: a\r\n")
        client.settimeout(0.1)
        answer = None
        while answer is None:
            try:
                answer = client.recv(100)
            except TimeoutError:
                client.sendall(b"X: y\r\n")
        assert status_of(answer) == 408


def test_half_a_second_request_is_timed_as_the_first() -> None:
    limits = Limits(request_seconds=2, idle_seconds=1000)
    with running(Pages(), limits) as server:
        for rest in (b"GET /two", request("/two", {"Content-Length": "9"}, "POST") + b"half"):
            with server.connect() as client:
                client.sendall(request("/one"))
                receive(client)
                client.sendall(rest)
                assert status_of(read_to_end(client)) == 408


def test_a_silent_connection_is_closed_without_a_word() -> None:
    with running(Pages(), Limits(request_seconds=0.2)) as server, server.connect() as client:
        assert read_to_end(client) == b""


def test_an_idle_connection_is_closed_after_its_time() -> None:
    limits = Limits(idle_seconds=0.2, linger_seconds=0.2)
    with running(Pages(), limits) as server, server.connect() as client:
        client.sendall(request("/one"))
        receive(client)
        assert read_to_end(client) == b""


@pytest.mark.parametrize("path", ["/large", "/packed"])
def test_a_client_that_never_reads_is_cut_off(path: str) -> None:
    limits = Limits(response_seconds=0.3, linger_seconds=0.2)
    pages = Pages()
    with running(pages, limits) as server, server.connect() as client:
        client.sendall(request(path))
        eventually(lambda: pages.paths == [path])
        eventually(lambda: connections(server) == 0)


def test_a_client_that_reads_slowly_but_steadily_gets_it_all() -> None:
    with running(Pages(), Limits(response_seconds=5)) as server, server.connect() as client:
        client.sendall(request("/packed"))
        assert server.get("/one")[1] == b"/one"
        assert receive(client)[1] == LARGE


def test_clients_that_vanish_leave_nothing_behind(served: Running) -> None:
    for path in ("/large", "/packed", "/one"):
        client = served.connect()
        client.sendall(request(path))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    eventually(lambda: connections(served) == 0)
    assert served.get("/one")[0].status == 200


def test_a_client_that_left_before_it_is_refused_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class LeavesAfterAnswer(Pages):
        """Its client reads the first answer and closes before its next request is looked at."""

        def respond(self, asked: Request) -> Response | asyncio.Future[Response]:
            asyncio.get_running_loop().call_soon(self.leave)
            return super().respond(asked)

        def leave(self) -> None:
            client.recv(65536)
            client.close()

    with running(LeavesAfterAnswer()) as server:
        client = server.connect()
        eventually(lambda: connections(server) == 1)
        client.sendall(request("/one") + b"malformed\n")
        eventually(lambda: connections(server) == 0)
    assert caplog.text == ""


# More clients than places.


def test_two_thousand_silent_connections_do_not_keep_a_scraper_out() -> None:
    with running(Pages(), Limits(connections=200)) as server, ExitStack() as stack:
        for number in range(2000):
            stack.enter_context(server.connect())
            if number % 100 == 0:
                assert server.get("/new")[1] == b"/new"
        assert len(server.server._serving) <= 200


def test_when_all_are_being_served_a_newcomer_is_politely_refused() -> None:
    pages = Pages()
    with running(pages, Limits(connections=4)) as server, ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(4)]
        for client in clients:
            client.sendall(request("/slow"))
        eventually(lambda: pages.paths == ["/slow"] * 4)
        response, _ = server.get("/new")
        assert response.status == 503
        assert response.getheader("Retry-After") == "1"
        assert response.getheader("Connection") == "close"
        pages.release.set()
        for client in clients:
            assert receive(client)[1] == b"at last\n"
        assert server.get("/new")[0].status == 200


def test_the_connection_that_was_inactive_longest_gives_way() -> None:
    with running(Pages(), Limits(connections=3)) as server, ExitStack() as stack:
        partial, silent, served = (stack.enter_context(server.connect()) for _ in range(3))
        partial.sendall(b"GET /half")
        eventually(lambda: any(each._received for each in list(server.server._serving)))
        served.sendall(request("/one"))
        receive(served)
        kept = []
        for _ in range(2):
            newcomer = stack.enter_context(server.connect())
            newcomer.sendall(request("/new"))
            assert receive(newcomer)[0].status == 200
            kept.append(newcomer)
        assert status_of(read_to_end(partial)) == 503
        assert read_to_end(silent) == b""
        for client in (served, *kept):
            client.sendall(request("/two"))
            assert receive(client)[1] == b"/two"


def test_a_header_now_and_then_does_not_keep_a_place() -> None:
    with running(Pages(), Limits(connections=2)) as server, ExitStack() as stack:
        slow, served = (stack.enter_context(server.connect()) for _ in range(2))
        slow.sendall(b"GET /one HTTP/1.1\r\n")
        served.sendall(request("/one"))
        receive(served)
        slow.sendall(b"Host: a\r\n")
        eventually(lambda: any(b"Host" in each._received for each in list(server.server._serving)))
        assert server.get("/new")[0].status == 200
        assert status_of(read_to_end(slow)) == 503


def test_clients_that_never_read_give_way_at_once() -> None:
    pages = Pages()
    with running(pages, Limits(connections=8)) as server, ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(server.connect()).sendall(request("/large"))
        eventually(
            lambda: (
                [each.stalled_since is None for each in list(server.server._serving)] == [False] * 8
            )
        )
        assert server.get("/new")[0].status == 200


def test_a_flood_of_connections_does_not_use_up_the_descriptors() -> None:
    """asyncio would write a traceback for each, and accept nothing for a second."""
    program = (
        "import asyncio, resource, sys\n"
        "from exporter.web.response import message\n"
        "from exporter.web.server import serve\n"
        "class Pages:\n"
        "    def respond(self, _request): return message(200, 'here')\n"
        "async def main():\n"
        "    server = await serve(['127.0.0.1:0'], Pages())\n"
        "    print(server.addresses[0], flush=True)\n"
        "    await asyncio.to_thread(sys.stdin.read)\n"
        "    await server.drain(0.0)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))\n"
        "asyncio.run(main())\n"
    )
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with (
        subprocess.Popen([sys.executable, "-c", program], text=True, **pipes) as process,
        ExitStack() as stack,
    ):
        assert process.stdout is not None
        host, _, port = process.stdout.readline().rpartition(":")
        for _ in range(2000):
            client = socket.socket()
            client.setblocking(False)
            stack.enter_context(client).connect_ex((host, int(port)))

        def is_answered() -> bool:
            with socket.create_connection((host, int(port)), DEADLINE_SECONDS) as client:
                client.sendall(request("/one", {"Connection": "close"}))
                return status_of(read_to_end(client)) == 200

        eventually(is_answered)
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, errors) == (0, "")


# Starting and stopping.


def test_a_server_that_stops_leaves_no_connection_open_that_it_was_accepting() -> None:
    """A socket that is left open warns when it is collected, and a warning is an error here."""
    for _ in range(5):
        with ExitStack() as stack, running(Pages()) as server:
            for _ in range(300):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(server.address)
        gc.collect()


def test_the_bound_address_is_shown(served: Running) -> None:
    assert served.server.addresses[0] == f"127.0.0.1:{served.address[1]}"
    with running(Pages(), listen="[::1]:0") as server:
        assert server.server.addresses[0].startswith("[::1]:")
        assert server.get("/one")[0].status == 200


def test_a_taken_address_is_an_error(served: Running) -> None:
    with pytest.raises(ExporterError, match="cannot listen"):
        served.call(serve(served.server.addresses, Pages()))


def test_a_drain_finishes_what_is_under_way() -> None:
    pages = Pages()
    with running(pages) as server, ExitStack() as stack:
        idle, slow, large = (stack.enter_context(server.connect()) for _ in range(3))
        slow.sendall(request("/slow"))
        large.sendall(request("/large"))
        eventually(lambda: sorted(pages.paths) == ["/large", "/slow"])
        draining = threading.Thread(target=lambda: server.call(server.server.drain(100)))
        draining.start()
        assert read_to_end(idle) == b""
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        pages.release.set()
        response, body = receive(slow)
        assert (body, response.getheader("Connection")) == (b"at last\n", "close")
        assert receive(large)[1] == LARGE
        large.close()
        draining.join()
        assert connections(server) == 0


def test_a_drain_ends_at_its_deadline() -> None:
    with running(Pages()) as server, server.connect() as client:
        client.sendall(request("/large"))
        assert client.recv(10)
        server.call(server.server.drain(0.2))
        assert connections(server) == 0


def test_a_drain_of_nothing_ends_at_once() -> None:
    with running(Pages()) as server:
        server.call(server.server.drain(1000))


@given(st.integers(0, 253_402_300_799))
def test_a_date_is_written_as_the_standard_library_writes_it(moment: int) -> None:
    assert http_date(moment) == formatdate(moment, usegmt=True)
