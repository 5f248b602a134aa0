"""The list of sessions: order, filters, pages."""

from __future__ import annotations

import re
from typing import Any

from exporter.web.pages.sessions import run_page, session_page, sessions_page

NOW = 1_800_000_000.0


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "home": "default",
        "id": f"20260101_{number:06}_abcdef",
        "source": "cli",
        "started_at": NOW - 7200,
        "last_activity_at": NOW - 60,
        "messages": number,
        "tokens": 10 * number,
        "verdict": "dead",
        "evidence": [{"kind": "k", "says": "dead", "detail": "no process"}],
    } | changes


def text(*rows: dict[str, Any], query: str = "") -> str:
    body = sessions_page(rows, query, NOW).body
    assert isinstance(body, bytes)
    return body.decode()


def ids(page: str) -> list[int]:
    return [int(each) for each in re.findall(r'href="/sessions/20260101_(\d+)_', page)]


def test_the_busiest_come_first() -> None:
    young = row(5, started_at=NOW - 1800)
    unknown = row(99, started_at=None)
    page = text(row(3), young, row(9), unknown)
    assert ids(page) == [5, 9, 3, 99]
    assert ">10.0<" in page
    assert ">0<" in page  # nothing is known of its hours
    assert ">&lt;0.1<" in text(row(1, started_at=NOW - 86400 * 30))


def test_a_session_of_seconds_is_not_the_busiest_for_its_first_message() -> None:
    assert ids(text(row(1, started_at=NOW - 1), row(50))) == [50, 1]


def test_filters_narrow_the_list_and_stay_selected() -> None:
    rows = [row(1), row(2, verdict="live"), row(3, verdict="live", source="tui"), row(4, home="b")]
    page = text(*rows, query="verdict=live&source=tui&home=&unknown=1")
    assert ids(page) == [3]
    assert "1 of 4 open sessions" in page
    assert "<option selected>live</option>" in page
    assert ids(text(*rows, query="home=b")) == [4]
    assert ids(text(*rows, query="verdict=%3Cscript%3E")) == []


def test_a_long_list_has_pages() -> None:
    rows = [row(number) for number in range(1, 451)]
    first, last = text(*rows, query="verdict=dead"), text(*rows, query="verdict=dead&page=2")
    assert ids(first)[:2] == [450, 449]
    assert len(ids(first)) == 200
    assert ids(last) == list(range(50, 0, -1))
    assert 'href="/sessions?verdict=dead&amp;page=1"' in first
    assert ids(text(*rows, query="page=-1")) == ids(first)


def test_a_long_list_says_that_it_may_be_a_minute_old() -> None:
    assert "renewed once a minute" in text(*(row(number) for number in range(501)))
    assert "renewed" not in text(*(row(number) for number in range(500)))


def test_a_list_that_would_be_too_long_says_so() -> None:
    body = sessions_page([row(1)], "", NOW, left_out=12_345).body
    assert isinstance(body, bytes)
    assert b"12,345 more are open and not listed" in body
    assert b"not listed" not in text(row(1)).encode()


def test_a_session_says_what_explain_says() -> None:
    rules = [
        {"rule": "not_held", "holds": True, "why": "nothing points to it"},
        {"rule": "idle_long_enough", "holds": False, "why": "a chat is there"},
    ]
    body = session_page(row(7, verdict="unknown", rules=rules)).body
    assert isinstance(body, bytes)
    page = body.decode()
    assert "nothing will return to it: nothing points to it" in page
    assert "it is idle for as long as the processes here ask for: a chat is there" in page
    assert "What would change it: the end of that process" in page
    assert "hermes-exporter explain 20260101_000007_abcdef" in page


def test_a_run_shows_each_action() -> None:
    item = {
        "action": "delete_session",
        "policy": "old_sessions",
        "target": "20260101_000007_abcdef",
        "reason": "old",
        "bytes": 2048,
        "state": "done",
        "why": "",
    }
    found = {
        "run": "r1",
        "kind": "prune",
        "home": "default",
        "started_at": NOW,
        "finished_at": NOW,
        "outcome": "done",
        "actions": 3,
        "bytes": 2048,
        "undoable_until": None,
        "why": "",
        "items": [item],
        "left_out": 2,
    }
    body = run_page("r1", [found]).body
    assert isinstance(body, bytes)
    page = body.decode()
    assert "20260101_000007_abcdef" in page
    assert "delete session" in page
    assert "2 more actions" in page
