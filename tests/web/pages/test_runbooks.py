"""Every runbook is a page, and nothing in its text becomes more than text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.web.pages import runbooks
from exporter.web.published import Published
from exporter.web.routes import Routes
from tests.real.hermes import REPOSITORY
from tests.support.web_server import running

NAMES = sorted(file.stem for file in (REPOSITORY / "dashboards" / "runbooks").glob("*.md"))


def test_every_runbook_is_listed_and_shown() -> None:
    with running(Routes(Published())) as server:
        response, body = server.get("/runbooks/")
        assert response.status == 200
        assert re.findall(r'<dt><a href="/runbooks/(\w+)"', body.decode()) == NAMES
        for name in NAMES:
            response, body = server.get(f"/runbooks/{name}")
            page = body.decode()
            assert response.status == 200
            assert response.getheader("Content-Type") == "text/html; charset=utf-8"
            assert "unsafe" not in response.getheader("Content-Security-Policy", "")
            assert f"<h1>{name}</h1>" in page
            assert page.count("<h2>") == 4
            assert '<pre><code class="language-sh">' in page
            for other in re.findall(r'href="/runbooks/(\w+)"', page):
                assert other in NAMES
        assert server.get(f"/runbooks/{NAMES[0]}.md")[1] == server.get(f"/runbooks/{NAMES[0]}")[1]


@pytest.mark.parametrize(
    "name", ["Hermes", "..", "%2e%2e%2fREADME", "HermesAgentDown/x", "hermesagentdown", "x" * 900]
)
def test_what_is_no_runbook_is_not_found(name: str) -> None:
    with running(Routes(Published())) as server:
        assert server.get(f"/runbooks/{name}")[0].status == 404


def test_names_of_other_alerts_are_links() -> None:
    page = runbooks.runbook_page("HermesAgentDown")
    assert page is not None
    assert isinstance(page.body, bytes)
    assert b'<a href="/runbooks/HermesTooManySeries">HermesTooManySeries</a>' in page.body


def test_a_text_that_was_tampered_with_stays_text() -> None:
    html = runbooks._html(
        "HermesAgentDown",
        "# HermesAgentDown\n\n<script>alert(1)</script> <img src=x onerror=alert(1)>\n\n"
        '[a](javascript:alert(1)) [b](data:text/html,x) [c](https://example.org/?"><b>)\n\n'
        "![d](vbscript:x) &lt;i&gt; `<u>`\n",
    )
    assert not re.findall(r"<(script|img|b|i|u)\b", html)
    assert re.findall(r'href="([^"]*)"', html) == ["https://example.org/?%22%3E%3Cb%3E"]
    assert "javascript:" not in "".join(re.findall(r"<[^>]*>", html))


def test_an_installation_without_runbooks_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runbooks, "_FOLDERS", (str(tmp_path / "missing"),))
    for cached in (runbooks._folder, runbooks.runbook_names):
        cached.cache_clear()
    try:
        body = runbooks.runbooks_page().body
        assert isinstance(body, bytes)
        assert b"has no runbooks" in body
        assert runbooks.runbook_page("HermesAgentDown") is None
    finally:
        for cached in (runbooks._folder, runbooks.runbook_names):
            cached.cache_clear()
