"""What each path answers."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prometheus_client.core import GaugeMetricFamily

from exporter.collectors.exposition import Rendered, render
from exporter.errors import ConfigError, UsageError
from exporter.web.published import Published
from exporter.web.response import pack
from exporter.web.routes import Routes
from tests.support.web_server import Running, eventually, receive, request, running

MODE = {"reaper": "observe", "prune": "observe"}
STATUS = json.dumps({"homes": [], "refused": 0, "agent": {"version": "1", "mode": MODE}}).encode()
SESSIONS = [{"id": f"session-{number:06}", "verdict": "held"} for number in range(29_000)]


def metrics(value: float = 1) -> Rendered:
    return render([GaugeMetricFamily("hermes_home_up", "Up.", value)])


def with_homes() -> Published:
    """What a scan has published."""
    published = Published()
    published.publish(
        metrics=metrics(),
        status=STATUS,
        sessions=pack(json.dumps(SESSIONS).encode() for _ in range(1)),
    )
    return published


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    with running(Routes(with_homes())) as server:
        yield server


def test_metrics_by_accept(served: Running) -> None:
    plain, text = served.get("/metrics")
    assert plain.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    assert text == metrics().text
    modern, body = served.get("/metrics", {"Accept": "application/openmetrics-text"})
    assert modern.getheader("Content-Type", "").startswith("application/openmetrics-text")
    assert body == metrics().openmetrics


def test_metrics_compressed_for_who_asks(served: Running) -> None:
    response, body = served.get("/metrics", {"Accept-Encoding": "gzip"})
    assert response.getheader("Content-Encoding") == "gzip"
    assert response.getheader("Vary") == "Accept, Accept-Encoding"
    assert gzip.decompress(body) == metrics().text


def test_the_metrics_path_can_be_another() -> None:
    with running(Routes(with_homes(), telemetry_path="/hermes")) as server:
        assert server.get("/hermes")[0].status == 200
        assert server.get("/metrics")[0].status == 404
        assert b'href="/hermes"' in server.get("/")[1]


def test_the_metrics_path_can_be_the_root() -> None:
    with running(Routes(with_homes(), telemetry_path="/")) as server:
        assert server.get("/")[1] == metrics().text


@pytest.mark.parametrize("path", ["metrics", "", "/-/healthy", "/-/reload"])
def test_a_metrics_path_that_cannot_be_is_an_error(path: str) -> None:
    with pytest.raises(UsageError, match=r"--web\.telemetry-path"):
        Routes(Published(), telemetry_path=path)


def test_it_is_healthy_at_once_and_ready_after_the_first_scan() -> None:
    published = Published()
    with running(Routes(published)) as server:
        assert server.get("/-/healthy")[0].status == 200
        for path in ("/-/ready", "/metrics", "/api/v1/status", "/api/v1/sessions"):
            assert server.get(path)[0].status == 503
        assert b"first scan is under way" in server.get("/")[1]
        published.publish(metrics=metrics(), status=b"{}", sessions=pack([b"[]"]))
        for path in ("/-/ready", "/metrics", "/api/v1/status", "/api/v1/sessions"):
            assert server.get(path)[0].status == 200


def test_metrics_may_come_before_the_first_scan_is_done() -> None:
    published = Published()
    published.publish(metrics=metrics(), status=b"{}", sessions=pack([b"[]"]), ready=False)
    with running(Routes(published)) as server:
        assert server.get("/metrics")[0].status == 200
        assert server.get("/-/ready")[0].status == 503


def test_the_status_is_json(served: Running) -> None:
    response, body = served.get("/api/v1/status")
    assert response.getheader("Content-Type") == "application/json"
    assert body == STATUS


def test_many_sessions_arrive_whole_compressed_or_not(served: Running) -> None:
    response, body = served.get("/api/v1/sessions", {"Accept-Encoding": "gzip"})
    assert response.getheader("Content-Encoding") == "gzip"
    assert json.loads(gzip.decompress(body)) == SESSIONS
    response, body = served.get("/api/v1/sessions")
    assert response.getheader("Content-Encoding") is None
    assert response.getheader("Content-Length") == str(len(body))
    assert json.loads(body) == SESSIONS


def test_a_page_is_compressed_for_those_who_can_read_it(served: Running) -> None:
    plain, text = served.get("/runbooks/HermesAgentDown")
    packed, body = served.get("/runbooks/HermesAgentDown", {"Accept-Encoding": "gzip"})
    assert plain.getheader("Content-Encoding") is None
    assert packed.getheader("Content-Encoding") == "gzip"
    assert packed.getheader("Vary") == "Accept-Encoding"
    assert len(body) < len(text) / 2
    assert gzip.decompress(body) == text


def test_the_parts_of_a_packed_text_are_one_text() -> None:
    packed = pack(str(number).encode() for number in range(50_000))
    text = "".join(map(str, range(50_000))).encode()
    assert packed.unpacked_bytes == len(text)
    assert b"".join(packed.unpack()) == text
    assert gzip.decompress(packed.data) == text


@pytest.mark.parametrize("path", ["/metrics", "/", "/-/healthy", "/api/v1/sessions", "/nowhere"])
def test_head_has_the_headers_of_get_and_no_body(served: Running, path: str) -> None:
    get, body = served.get(path)
    head, nothing = served.get(path, method="HEAD")
    assert nothing == b""
    assert head.status == get.status
    assert head.getheader("Content-Length") == str(len(body))
    assert head.getheader("Content-Type") == get.getheader("Content-Type")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "FROB"])
def test_another_method_is_told_which_are_allowed(served: Running, method: str) -> None:
    response, _ = served.get("/metrics", method=method)
    assert (response.status, response.getheader("Allow")) == (405, "GET, HEAD")


def test_reload_is_not_for_reading(served: Running) -> None:
    response, _ = served.get("/-/reload")
    assert (response.status, response.getheader("Allow")) == (405, "POST, PUT")


def test_an_unknown_path_is_not_found(served: Running) -> None:
    for path in ("/nowhere", "/metrics/", "//metrics", "/../etc/passwd", "/%2e%2e/x"):
        assert served.get(path)[0].status == 404


def test_reload_is_off_unless_enabled(served: Running) -> None:
    response, body = served.get("/-/reload", method="POST")
    assert response.status == 403
    assert b"--web.enable-lifecycle" in body


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_reload_answers_when_the_settings_are_in_force(method: str) -> None:
    reloads: list[str] = []
    with running(Routes(Published(), reload=lambda: reloads.append("done"))) as server:
        response, body = server.get("/-/reload", method=method)
    assert (response.status, body, reloads) == (200, b"reloaded\n", ["done"])


def test_a_failed_reload_gives_its_reason_in_one_line() -> None:
    def reload() -> None:
        raise ConfigError("hermes.yml:3: unknown key\n'scann'")

    with running(Routes(Published(), reload=reload)) as server:
        response, body = server.get("/-/reload", method="POST")
    assert response.status == 500
    assert body == b"reload failed: hermes.yml:3: unknown key 'scann'\n"


def test_a_slow_reload_does_not_hold_up_a_scrape() -> None:
    release = threading.Event()

    def reload() -> None:
        assert release.wait(30)

    with running(Routes(with_homes(), reload=reload)) as server, server.connect() as client:
        client.sendall(request("/-/reload", method="POST"))
        assert server.get("/metrics")[0].status == 200
        release.set()
        assert receive(client)[0].status == 200


def test_a_web_page_cannot_reload() -> None:
    reloads: list[str] = []
    with running(Routes(Published(), reload=lambda: reloads.append("done"))) as server:
        headers = {"Origin": "https://evil.example"}
        assert server.get("/-/reload", headers, method="POST")[0].status == 403
    assert reloads == []


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/status", "/nowhere"])
def test_every_answer_carries_the_security_headers(served: Running, path: str) -> None:
    response, _ = served.get(path)
    assert response.getheader("Server") == "hermes-exporter"
    assert response.getheader("Cache-Control") == "no-store"
    assert response.getheader("X-Content-Type-Options") == "nosniff"
    policy = response.getheader("Content-Security-Policy", "")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert response.getheader("Date", "").endswith(" GMT")


def test_the_host_header_is_not_reflected(served: Running) -> None:
    for path in ("/", "/nowhere", "/metrics"):
        asked = f"GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        answer = served.say(asked.encode())
        assert answer
        assert b"evil" not in answer


def test_a_scrape_is_never_half_new() -> None:
    """Another thread publishes as fast as it can; each scrape is one of the published wholes."""
    published = with_homes()
    wholes = {metrics(value).text: value for value in range(50)}
    rendered = [metrics(value) for value in range(50)]
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            for each in rendered:
                published.publish(metrics=each, status=b"{}", sessions=pack([b"[]"]))

    published.publish(metrics=rendered[0], status=b"{}", sessions=pack([b"[]"]))
    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        with running(Routes(published)) as server:
            seen = {wholes[server.get("/metrics")[1]] for _ in range(200)}
    finally:
        stop.set()
        publisher.join()
    assert len(seen) > 1


def test_answers_that_take_time_are_bounded() -> None:
    """A connection that waits for one gives way to none: a scrape must still find a place."""
    release = threading.Event()

    def reload() -> None:
        release.wait(100)

    routes = Routes(with_homes(), reload=reload)
    with running(routes) as server, ExitStack() as stack:
        waiting = [stack.enter_context(server.connect()) for _ in range(64)]
        for client in waiting:
            client.sendall(request("/-/reload", method="POST"))
        eventually(lambda: routes._pending == 64)
        assert server.get("/-/reload", method="POST")[0].status == 503
        assert server.get("/metrics")[0].status == 200
        release.set()
        assert {receive(client)[0].status for client in waiting} == {200}
        assert routes._pending == 0
