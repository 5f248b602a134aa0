"""The host page: what it says, and that it is made from what the agent published."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from typing import Any

from exporter.web.pages.environment import static_file
from exporter.web.pages.host import host_page

DISK = {"transcripts": 3 << 29, "state_db": 1 << 20, "logs": 0}


def home(name: str = "default", **changes: Any) -> dict[str, Any]:
    verdicts = {"live": 2, "held": 1, "dead": 1010, "exempt": 0, "unknown": 7}
    return {
        "home": name,
        "up": True,
        "trouble": "none",
        "blind": [],
        "mode": {"reaper": "enforce", "prune": "observe"},
        "sessions": {"open": 1020, "ended": 34_567, "empty": 12, "trivial": 3},
        "verdicts": verdicts,
        "disk": DISK,
        "thresholds": [
            {
                "name": "transcripts",
                "value": 3 << 29,
                "high": 2 << 30,
                "low": 1 << 30,
                "pressure": True,
            }
        ],
        "breaker": None,
        "would_reap": 1010,
        "would_prune": {"items": 5, "bytes": 1 << 21},
        "could_prune": {"items": 51, "bytes": 3 << 20},
        "planned_at": time.time() - 130,
        "slow_start": {"per_hour": 10, "left": 4, "waiting": 1006},
        "capped": {"items": 40, "bytes": 1 << 20, "more_at": time.time() + 60},
        "scanned_at": time.time() - 75,
        "leaked": [{"source": "cli", "cause": "mid_turn", "sessions": 1010}],
        "unknown": {"chat": 7},
        "waiting": [
            {
                "reason": "chat",
                "sessions": 7,
                "overdue": 3,
                "processes": 1,
                "process_began_at": time.time() - 86400,
                "dead_at": time.time() + 2 * 3600 + 30,
            }
        ],
        "policies": [{"policy": "old_sessions", "eligible": 4, "items": 5, "bytes": 1 << 21}],
        "prune_blocked": [],
        "unreachable": [],
    } | changes


def shown(*homes: dict[str, Any], runs: Any = (), trends: Any = None, only: Any = None) -> str:
    agent = {
        "version": "1",
        "mode": {"reaper": "enforce", "prune": "observe"},
        "started_at": time.time() - 7200,
        "blind": [],
        "config_ok": True,
    }
    status = {"homes": list(homes), "refused": 2, "agent": agent}
    body = host_page(status, runs, trends, "/metrics", only).body
    assert isinstance(body, bytes)
    return body.decode()


def words(page: str) -> str:
    """The text of a page, as a person reads it."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_it_says_what_is_wrong_and_what_would_be_done() -> None:
    text = words(shown(home()))
    for sentence in (
        "1,010 dead",
        "7 unknown",
        "cli 1,010 0 0 1,010",
        "7 cannot be judged (chat): dead in 2h, if nothing happens; 3 overdue",
        "transcripts 1.5 GiB",
        "low 1.0 GiB, high 2.0 GiB",
        "under pressure",
        "Ends 1,010 sessions that no process runs and nothing will return to; 1,006 wait for ",
        "the slow start, 10 an hour at present",
        "40 more items, 1.0 MiB, follow later",
        "Prune now as of 2m ago By hand: 51 items, 3.0 MiB , all that the policies allow",
        "The plan: hermes-exporter prune If it enforced, the agent would take 5 items, 2.0 MiB",
        "old sessions 5 2.0 MiB",
        "1m ago",
        "agent up for 2h",
        "2 directories look like homes and are not watched",
    ):
        assert sentence in text


def test_a_home_that_cannot_be_read_shows_no_numbers() -> None:
    unread = {"open": None, "ended": None, "empty": None, "trivial": None}
    down = home(
        "hung",
        up=False,
        trouble="timeout",
        blind=["database"],
        sessions=unread,
        verdicts={"live": None, "held": None, "dead": None, "exempt": None, "unknown": None},
        disk={},
        thresholds=[],
        would_prune={"items": None, "bytes": None},
        could_prune={"items": None, "bytes": None},
        planned_at=None,
        scanned_at=None,
        leaked=[],
        unknown={},
        waiting=[],
        policies=[],
    )
    text = words(shown(down))
    assert "down: timeout" in text
    assert "blind: database" in text
    assert "Open sessions: ?" in text
    assert "Prune now By hand: ? items, ?" in text
    assert "Disk: ?" in text
    assert "never scanned" in text
    assert "Pressure ? the thresholds were not checked yet" in text
    assert "Last runs Not known while the home cannot be read" in text
    assert "none" not in text


def test_the_command_beside_a_number_says_if_it_is_for_more_homes_than_this() -> None:
    modes: dict[str, Any] = {"mode": {"reaper": "observe", "prune": "observe"}}
    calm = modes | {"could_prune": {"items": 0, "bytes": 0}, "would_reap": 0}
    one, several = shown(home(**modes)), shown(home(**modes), home("b", **modes))
    for command in ("reap", "prune"):
        wanted = f"hermes-exporter {command}"
        assert f"The plan: {wanted} " in words(one)
        assert f"The plan of all homes: {wanted} " in words(several)
        assert wanted not in words(shown(home(**calm)))


def test_the_worst_home_comes_first() -> None:
    calm = home("calm", thresholds=[], verdicts=dict.fromkeys(home()["verdicts"], 0))
    down = home("zz-down", up=False, trouble="io_error")
    page = shown(calm, home("busy"), down)
    names = re.findall(r'href="/\?home=([^"]+)"', page)
    assert names == ["zz-down", "busy", "calm"]


def test_a_run_has_the_command_that_takes_it_back_while_it_can_be() -> None:
    run = {
        "run": "20260101T000000-abcdef",
        "kind": "prune",
        "home": "default",
        "started_at": time.time() - 100,
        "finished_at": time.time() - 90,
        "outcome": "done",
        "actions": 12,
        "bytes": 1 << 20,
        "undoable_until": time.time() + 3600,
    }
    old = run | {"run": "20250101T000000-abcdef", "undoable_until": time.time() - 1}
    page = shown(home(), runs=[run, old, run | {"home": "another", "run": "elsewhere"}])
    assert re.findall(r"hermes-exporter undo [^<]+", page) == [f"hermes-exporter undo {run['run']}"]
    assert f'href="/runs/{old["run"]}"' in page
    assert page.count("Nothing of it is left to take back.") == 1
    assert "elsewhere" not in page


def test_growth_of_leaks_and_lines_come_from_the_trends() -> None:
    now = int(time.time())
    times = [now - (600 - each) * 300 for each in range(600)]
    trend = {
        "home": "default",
        "at": times,
        "open": list(range(600)),
        "dead": [each // 2 for each in range(600)],
        "unknown": [0] * 600,
        "tokens": [each * 1000.0 for each in range(600)],
        "disk": {"transcripts": [1 << 30] * 600, "logs": [0] * 600},
    }
    page = shown(home(), trends={"interval_seconds": 300, "homes": [trend]})
    assert "+855 in the last 24h" in words(page)  # from what it was then to what it is now
    data = [json.loads(each) for each in Attributes.of(page, "data-lines")]
    sessions, disk, tokens = data
    assert [line["text"][-1] for line in sessions["lines"]] == ["599", "299"]
    assert [line["text"][-1] for line in disk["lines"]] == ["1.0 GiB"]
    assert set(tokens["lines"][0]["text"]) == {"12,000"}
    assert "open 599 dead 299" in words(page)


def test_a_name_cannot_become_markup() -> None:
    page = shown(home('<script>alert(1)</script>"onload="x'))
    assert "<script>alert" not in page
    assert '"onload="x' not in page


def test_only_one_home_is_shown_if_it_is_asked_for() -> None:
    page = shown(home("a"), home("b"), only="b")
    assert re.findall(r'<h2 id="home-1">([^<]+)</h2>', page) == ["b"]
    assert "All 2 homes" in page
    assert "There is no home of this name" in shown(home("a"), only="zz")


def test_nothing_comes_from_elsewhere_and_nothing_is_inline() -> None:
    page = shown(home())
    assert "://" not in page
    assert " style=" not in page
    assert not re.search(r"<script(?! src=)|<style| on\w+=", page)
    for name in ("page.css", "page.js", "icon.svg"):
        found = static_file(name)
        assert found is not None
        assert f'"/static/{name}"' in page
    assert static_file("../host.py") is None


def test_many_homes_stay_one_page() -> None:
    page = shown(*(home(f"h{number}") for number in range(300)))
    assert page.count('class="card home"') == 12
    assert "288 more homes are only in the table" in page


class Attributes(HTMLParser):
    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.found: list[str] = []

    def handle_starttag(self, _tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attributes if name == self._name and value]

    @classmethod
    def of(cls, page: str, name: str) -> list[str]:
        parser = cls(name)
        parser.feed(page)
        return parser.found


def test_why_bytes_cannot_be_freed_is_said_in_words() -> None:
    left = [{"threshold": "disk_used", "reason": "no_space", "bytes": 1 << 20}]
    text = words(shown(home(unreachable=left, prune_blocked=["run_failed", "routing"])))
    assert "Prune is blocked: the last run failed, as the log says;" in text
    assert "Prune is blocked: this cannot be seen: which chats lead to a session." in text
    assert "1.0 MiB of disk used cannot be freed: there is no room for copies in the trash." in text
