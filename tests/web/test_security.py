"""Each request is checked before it reaches a page: Host, file, rate limit, password."""

from __future__ import annotations

import base64
import time
from contextlib import ExitStack
from pathlib import Path

import bcrypt
import pytest

from exporter.web.limits import Limits
from exporter.web.passwords import WAITING_MAX, PasswordChecker
from exporter.web.published import Published
from exporter.web.rate_limit import RateLimiter
from exporter.web.routes import Routes
from exporter.web.security import WebSecurity
from exporter.web.web_config import WebConfigFile
from tests.support.web_server import eventually, receive, request, running
from tests.web.test_passwords import Recorder
from tests.web.test_server import Pages

HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
USERS = f"basic_auth_users: {{ada: {HASH}}}\n"


def security(tmp_path: Path, text: str, checker: PasswordChecker | None = None) -> WebSecurity:
    file = tmp_path / "web.yml"
    file.write_text(text)
    return WebSecurity(WebConfigFile(str(file)), passwords=checker)


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_only_a_user_with_the_right_password_sees_anything(tmp_path: Path) -> None:
    rules = security(tmp_path, USERS)
    with running(Routes(Published()), security=rules) as server:
        for path in ("/", "/metrics", "/-/healthy", "/-/reload", "/nowhere"):
            for headers in (
                {},
                basic("ada", "guess"),
                basic("bob", "secret"),
                basic("", ""),
                {"Authorization": f"Bearer {HASH}"},
                {"Authorization": "Basic !!!"},
                {"Authorization": "Basic " + base64.b64encode(b"ada").decode()},
            ):
                for method in ("GET", "POST"):
                    response, body = server.get(path, headers, method)
                    assert response.status == 401
                    assert response.getheader("WWW-Authenticate") == "Basic"
                    assert body == b"user and password needed\n"
        for _ in range(2):
            assert server.get("/-/healthy", basic("ada", "secret"))[0].status == 200


def test_a_new_password_counts_at_once_and_the_old_no_more(tmp_path: Path) -> None:
    rules = security(tmp_path, USERS)
    with running(Pages(), security=rules) as server:
        assert server.get("/one", basic("ada", "secret"))[0].status == 200
        changed = bcrypt.hashpw(b"changed", bcrypt.gensalt(4)).decode()
        (tmp_path / "web.yml").write_text(f"basic_auth_users: {{ada: {changed}}}\n")
        assert server.get("/one", basic("ada", "changed"))[0].status == 200
        assert server.get("/one", basic("ada", "secret"))[0].status == 401


def test_a_broken_file_answers_500_and_no_page(tmp_path: Path) -> None:
    pages = Pages()
    with running(pages, security=security(tmp_path, USERS)) as server:
        (tmp_path / "web.yml").write_text("basic_auth_users: [")
        eventually(lambda: server.get("/one", basic("ada", "guess"))[0].status == 500)
        response, body = server.get("/one", basic("ada", "secret"))
        assert response.status == 500
        assert body == b"the web configuration file has a problem; see the log of hermes-exporter\n"
        assert pages.paths == []
        (tmp_path / "web.yml").write_text(USERS)
        assert server.get("/one", basic("ada", "secret"))[0].status == 200


def test_guesses_hold_up_no_scrape(tmp_path: Path) -> None:
    """More of them than connections: those whose password is known are answered meanwhile."""
    recorder = Recorder()
    recorder.go_on.set()
    checker = PasswordChecker(lambda password, stored: recorder(password, stored) or True)
    rules = security(tmp_path, USERS, checker)
    with running(Pages(), Limits(connections=100), security=rules) as server, ExitStack() as stack:
        assert server.get("/one", basic("ada", "secret"))[0].status == 200
        recorder.go_on.clear()
        guessers = []
        for number in range(150):
            guessers.append(stack.enter_context(server.connect()))
            guessers[-1].sendall(request("/one", basic("ada", f"{number}")))
        for _ in range(20):
            assert server.get("/one", basic("ada", "secret"))[0].status == 200
        assert len(server.server._serving) <= 100
        assert receive(guessers[1])[0].status == 503  # the first is being checked
        assert sum(map(len, checker._waiting.values())) <= WAITING_MAX
        recorder.go_on.set()


def test_headers_of_the_file_are_in_every_answer(tmp_path: Path) -> None:
    text = """\
http_server_config:
  headers:
    X-Frame-Options: sameorigin
    Strict-Transport-Security: max-age=31536000
    X-Content-Type-Options: nosniff
    X-XSS-Protection: 1
    Content-Security-Policy: "default-src 'self'"
"""
    with running(Pages(), security=security(tmp_path, text + USERS)) as server:
        for headers in ({}, basic("ada", "secret")):
            response, _ = server.get("/one", headers)
            for name, value in {
                "X-Frame-Options": "sameorigin",
                "Strict-Transport-Security": "max-age=31536000",
                "X-Content-Type-Options": "nosniff",
                "X-XSS-Protection": "1",
                "Content-Security-Policy": "default-src 'self'",
            }.items():
                assert response.headers.get_all(name) == [value]


def test_a_blank_header_leaves_ours(tmp_path: Path) -> None:
    text = "http_server_config: {headers: {Content-Security-Policy: '', X-XSS-Protection: ''}}"
    with running(Pages(), security=security(tmp_path, text)) as server:
        response, _ = server.get("/one")
        assert response.getheader("Content-Security-Policy", "").startswith("default-src 'none'")
        assert response.getheader("X-XSS-Protection") is None


def test_above_the_rate_limit_requests_are_refused(tmp_path: Path) -> None:
    text = "rate_limit: {interval: 1h, burst: 3}"
    with running(Pages(), security=security(tmp_path, text)) as server:
        answers = [server.get("/one")[0] for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        assert answers[-1].getheader("Retry-After") == "1"


def test_a_token_comes_back_with_each_interval() -> None:
    now = [0.0]
    limiter = RateLimiter(2.0, 3, lambda: now[0])
    assert [limiter.allows() for _ in range(4)] == [True, True, True, False]
    now[0] = 2.0
    assert [limiter.allows() for _ in range(2)] == [True, False]
    now[0] = 1000.0
    assert [limiter.allows() for _ in range(4)] == [True, True, True, False]


def test_a_burst_of_0_refuses_all_and_an_interval_of_0_none() -> None:
    assert not RateLimiter(1.0, 0).allows()
    assert RateLimiter(0.0, 0).allows()


def test_a_loopback_listener_is_not_read_under_another_name() -> None:
    pages = Pages()
    rules = WebSecurity(allowed_hosts=["metrics.example.org"])
    with running(pages, security=rules) as server:

        def asked(host: str) -> int:
            with server.connect() as client:
                client.sendall(f"GET /one HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                return receive(client)[0].status

        assert asked("evil.example") == 403
        assert pages.paths == []
        for host in ("localhost", f"127.0.0.1:{server.address[1]}", "metrics.example.org:443"):
            assert asked(host) == 200


def test_other_listeners_may_be_asked_by_any_name() -> None:
    """Only the names that point to this host are known to its name servers, not to the agent."""
    with (
        running(Pages(), listen=":0", security=WebSecurity()) as server,
        server.connect() as client,
    ):
        client.sendall(b"GET /one HTTP/1.1\r\nHost: web1.example.org\r\n\r\n")
        assert receive(client)[0].status == 200


@pytest.mark.full
def test_unknown_and_known_users_take_equal_time(tmp_path: Path) -> None:
    stored = bcrypt.hashpw(b"secret", bcrypt.gensalt(10)).decode()
    rules = security(tmp_path, f"basic_auth_users: {{ada: {stored}}}\n")
    spent: dict[str, list[float]] = {"ada": [], "bob": []}
    with running(Pages(), security=rules) as server:
        for number in range(40):
            for user, times in spent.items():
                began = time.perf_counter()
                assert server.get("/one", basic(user, f"{number}"))[0].status == 401
                times.append(time.perf_counter() - began)
    medians = {user: sorted(times)[20] for user, times in spent.items()}
    assert medians["bob"] == pytest.approx(medians["ada"], rel=0.2)
