"""What each path answers."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator

import pytest
from msgspec import structs
from prometheus_client.core import GaugeMetricFamily

from exporter import __version__
from exporter.collectors.exposition import Rendered, render
from exporter.errors import ConfigError, UsageError
from exporter.web.landing import landing_page
from exporter.web.published import HomeRow, Published
from exporter.web.response import pack
from exporter.web.routes import Routes
from tests.support.web_server import Running, receive, request, running

SESSIONS = [{"id": f"session-{number:06}", "verdict": "held"} for number in range(29_000)]


def metrics(value: float = 1) -> Rendered:
    return render([GaugeMetricFamily("hermes_home_up", "Up.", value)])


def with_homes(**homes: HomeRow) -> Published:
    """What a scan of these homes has published."""
    published = Published()
    published.publish(
        metrics=metrics(),
        status=b'{"homes": []}',
        sessions=pack(json.dumps(SESSIONS).encode() for _ in range(1)),
        homes=tuple(homes.values()),
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
    assert json.loads(body) == {"homes": []}


def test_many_sessions_arrive_whole_compressed_or_not(served: Running) -> None:
    response, body = served.get("/api/v1/sessions", {"Accept-Encoding": "gzip"})
    assert response.getheader("Content-Encoding") == "gzip"
    assert json.loads(gzip.decompress(body)) == SESSIONS
    response, body = served.get("/api/v1/sessions")
    assert response.getheader("Content-Encoding") is None
    assert response.getheader("Content-Length") == str(len(body))
    assert json.loads(body) == SESSIONS


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


def test_the_landing_page_shows_the_homes() -> None:
    published = with_homes(
        a=HomeRow("default", up=True, sessions_open=12, sessions_ended=34_567, disk_bytes=3 << 29),
        b=HomeRow("<script>alert(1)", False, None, None, 0),
    )
    with running(Routes(published)) as server:
        response, body = server.get("/")
    page = body.decode()
    assert response.getheader("Content-Type") == "text/html; charset=utf-8"
    assert f"Version {__version__}" in page
    assert '<td>default</td><td>up</td><td class="number">12</td>' in page
    assert "34,567" in page
    assert "1.5 GiB" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert '<td class="down">down</td><td class="number">unknown</td>' in page


def test_the_landing_page_tells_verdicts_blindness_and_how_old_a_scan_is() -> None:
    well = HomeRow(
        *("default", True, 1012, 5, 1024),
        blind=("permissions", "clock"),
        verdicts=(("live", 2), ("held", 0), ("dead", 1010)),
        scanned_at=1000.0,
    )
    hung = HomeRow("hung", False, None, None, 0, trouble="timeout")
    content = structs.replace(with_homes(a=well, b=hung).content, refused=2)
    body = landing_page(content, "/metrics", clock=lambda: 1075.0).body
    assert isinstance(body, bytes)
    page = body.decode()
    assert '<small class="blind">blind: permissions, clock</small>' in page
    assert "1,012<small>2 live, 1,010 dead</small>" in page
    assert '<td class="number">1m ago</td>' in page
    assert '<td class="down">down<small>timeout</small></td>' in page
    assert '<td class="number">never</td>' in page
    assert "2 directories look like homes and are not watched" in page


def test_the_landing_page_needs_nothing_from_elsewhere(served: Running) -> None:
    _, body = served.get("/")
    assert b"://" not in body
    for path in ("/metrics", "/api/v1/status", "/api/v1/sessions", "/-/healthy", "/-/ready"):
        assert f'href="{path}"'.encode() in body
        assert served.get(path)[0].status == 200


def test_the_landing_page_stays_small_with_many_homes() -> None:
    row = HomeRow("h", up=True, sessions_open=1, sessions_ended=1, disk_bytes=1)
    with running(Routes(with_homes(**{f"h{number}": row for number in range(1000)}))) as server:
        _, body = server.get("/")
    assert b"and 800 more" in body
    assert len(body) < 65536


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
