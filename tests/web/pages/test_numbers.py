"""Every number of the pages is one of the JSON, and that one of the metrics.

The short form of tests/web/pages/test_in_browser.py: what the agent sends, without a browser.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from exporter.text import format_count
from tests.real.agent import Agent
from tests.web.pages.numbers import differences, look, missing, unexplained, visible
from tests.web.pages.sites import demo

pytestmark = pytest.mark.xdist_group("demo-pages")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with demo(tmp_path_factory.mktemp("pages")) as started:
        yield started


def test_the_host_page_has_every_number_and_no_other(running: Agent) -> None:
    seen = look(running, lambda: visible(running.get("/")[1].decode()))
    assert len(seen.status["homes"]) == 2
    assert [each["kind"] for each in seen.runs] == ["prune", "prune"]
    assert missing(seen) == []
    assert unexplained(seen) == []
    assert differences(seen) == []
    assert f"hermes-exporter undo {seen.runs[0]['run']}" in seen.page


def test_the_list_has_every_session_with_its_numbers(running: Agent) -> None:
    rows = json.loads(running.get("/api/v1/sessions")[1])
    text = visible(running.get("/sessions")[1].decode())
    assert f"{len(rows)} of {len(rows)} open sessions" in text
    for row in rows:
        words = (row["id"], row["verdict"], row["source"], row["home"])
        assert f"{' '.join(words)} {format_count(row['messages'])} " in text
        assert f" {format_count(row['tokens'])} " in text
