"""The pages in a real Chromium: they fit, say the truth, and need neither mouse nor script."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from exporter.text import format_count
from exporter.web.pages.runbooks import runbook_names
from tests.real.agent import Agent
from tests.real.axe import axe_script, obstacles
from tests.real.chromium import Chromium, chromium
from tests.real.waiting import wait_until
from tests.web.pages.numbers import differences, look, missing, readable, unexplained
from tests.web.pages.sites import NAME, OPEN, demo, large

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("pages"), pytest.mark.timeout(1800)]
SITES = ("demo", "large")
WIDTHS = (360, 768, 1440)
THEMES = ("light", "dark")
TAB, ENTER, DOWN, LEFT, HOME, END = "\ue004", "\ue007", "\ue015", "\ue012", "\ue011", "\ue010"
TEXT = """
for (const drawn of document.querySelectorAll("svg")) drawn.style.display = "none";
const text = document.body.innerText;
for (const drawn of document.querySelectorAll("svg")) drawn.style.display = "";
return text;
"""
COUNT = """
const all = [...document.querySelectorAll("a, button, select, input, summary, [tabindex='0']")];
const closed = "details:not([open]) > :not(summary)";
return all.filter((each) => each.checkVisibility() && !each.closest(closed)).length;
"""
FOCUSED = """
const found = document.activeElement;
const style = getComputedStyle(found);
const text = found.getAttribute("aria-label") || found.innerText || "";
return {name: found.localName, text: text.trim(),
        outline: style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth)};
"""


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Agent]]:
    with ExitStack() as stack:
        yield {
            "demo": stack.enter_context(demo(tmp_path_factory.mktemp("demo"))),
            "large": stack.enter_context(large(tmp_path_factory.mktemp("large"))),
        }


@pytest.fixture(scope="module")
def window() -> Iterator[Chromium]:
    with chromium(f"--host-resolver-rules=MAP {NAME} 127.0.0.1") as opened:
        yield opened


@pytest.fixture(autouse=True)
def at_rest(window: Chromium) -> None:
    """As a new window: wide, light, with scripts, with nothing in its logs."""
    window.tell("Emulation.setScriptExecutionDisabled", value=False)
    window.open("about:blank")
    window.resize(1440, 900)
    use_theme(window, "light")
    window.point(0, 0)
    window.log("browser")
    window.log("performance")


@pytest.fixture(scope="module")
def axe() -> str:
    return axe_script()


def use_theme(window: Chromium, theme: str) -> None:
    window.tell(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}]
    )


def set_offline(window: Chromium, offline: bool) -> None:
    unlimited = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    window.tell("Network.emulateNetworkConditions", offline=offline, **unlimited)


def asked(running: Agent, path: str) -> Any:
    return json.loads(running.get(path)[1])


def paths(running: Agent) -> list[str]:
    """One page of each kind."""
    sessions, runs = asked(running, "/api/v1/sessions"), asked(running, "/api/v1/runs")
    return [
        "/",
        f"/?home={asked(running, '/api/v1/status')['homes'][0]['home']}",
        "/?home=none",
        "/sessions",
        "/sessions?verdict=dead&page=1",
        "/sessions?verdict=dead",
        f"/sessions/{sessions[0]['id']}",
        "/sessions/20990101_000000_aaaaaa",
        *(f"/runs/{each['run']}" for each in runs[:1]),
        "/runbooks/",
        "/runbooks/HermesAgentDown",
    ]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("site", SITES)
def test_every_page_fits_and_has_no_obstacle(
    site: str, width: int, theme: str, sites: dict[str, Agent], window: Chromium, axe: str
) -> None:
    running = sites[site]
    use_theme(window, theme)
    window.resize(width, 900)
    for path in paths(running):
        window.open(running.url + path)
        window.after_painting()
        assert window.run("return document.documentElement.scrollWidth") <= width, path
        assert window.run("return matchMedia('(prefers-color-scheme: dark)').matches") == (
            theme == "dark"
        )
        # On a phone nothing is out of sight, not even in a part that can be moved, but for the
        # tables by day, which have a column for each kind.
        if width == min(WIDTHS):
            moved = "return [...document.querySelectorAll('.scroll:not(details *)')].filter("
            moved += "(each) => each.scrollWidth > each.clientWidth + 1).length"
            assert window.run(moved) == 0, path
        assert obstacles(window, axe) == [], path


def test_every_runbook_fits_on_a_phone(sites: dict[str, Agent], window: Chromium, axe: str) -> None:
    window.resize(min(WIDTHS), 900)
    for name in runbook_names():
        window.open(f"{sites['demo'].url}/runbooks/{name}")
        assert window.run("return document.documentElement.scrollWidth") <= min(WIDTHS), name
        assert obstacles(window, axe) == [], name


@pytest.mark.parametrize("site", SITES)
def test_nothing_is_asked_of_others_and_nothing_is_refused(
    site: str, sites: dict[str, Agent], window: Chromium
) -> None:
    """No external request, no broken one, nothing that the security policy had to stop."""
    running = sites[site]
    for path in paths(running):
        window.open(running.url + path)
        window.after_painting()
    sent = [json.loads(each["message"])["message"] for each in window.log("performance")]
    urls = {
        each["params"]["request"]["url"]
        for each in sent
        if each["method"] == "Network.requestWillBeSent"
    }
    assert {url for url in urls if not url.startswith(f"{running.url}/")} == set()
    assert f"{running.url}/static/page.js" in urls
    complaints = [each["message"] for each in window.log("browser")]
    assert [each for each in complaints if "404" not in each] == []  # two pages are not there


def test_no_script_or_style_is_in_the_page_itself(
    sites: dict[str, Agent], window: Chromium
) -> None:
    for path in paths(sites["demo"]):
        window.open(sites["demo"].url + path)
        # One put there by a browser's own means would not run either.
        window.run(
            "const bad = document.createElement('script'); bad.textContent = 'window.bad = 1';"
            "document.body.append(bad);"
            "const click = '<p id=clicked onclick=\"window.bad = 2\">';"
            "document.body.insertAdjacentHTML('beforeend', click);"
            "document.getElementById('clicked').click();"
        )
        assert window.run("return window.bad ?? 0") == 0
        assert "Content Security Policy" in str(window.log("browser"))


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "without scripts"])
@pytest.mark.parametrize("site", SITES)
def test_every_number_is_that_of_json_and_metrics(
    site: str, scripts: bool, sites: dict[str, Agent], window: Chromium
) -> None:
    window.tell("Emulation.setScriptExecutionDisabled", value=not scripts)

    def opened() -> str:
        window.open(f"{sites[site].url}/")
        return readable(window.run(TEXT)).replace(" Copy ", " ")

    seen = look(sites[site], opened)
    assert missing(seen) == []
    assert unexplained(seen) == []
    assert differences(seen) == []
    assert window.run("return document.documentElement.classList.contains('scripted')") == scripts


def test_the_list_is_filtered_by_keyboard_and_the_choice_stays_in_the_address(
    sites: dict[str, Agent], window: Chromium
) -> None:
    running = sites["large"]
    rows = asked(running, "/api/v1/sessions")
    window.open(f"{running.url}/sessions")
    assert f"{OPEN:,} of {OPEN:,} open sessions" in window.run(TEXT)
    window.run("document.querySelector('select[name=source]').focus()")
    chosen = ""
    while chosen != "cron":  # down the list of sources, which is sorted
        window.press(DOWN)
        chosen = window.run("return document.activeElement.value")
    wanted = [row for row in rows if row["source"] == "cron"]
    told = f"{format_count(len(wanted))} of {OPEN:,} open sessions"
    status = "return document.querySelector('#results [role=status]').innerText"
    wait_until(lambda: window.run(status).startswith(told), "the list is filtered")
    assert window.run("return document.activeElement.name") == "source"  # it was not lost
    assert parse_qs(urlsplit(window.run("return location.href")).query) == {"source": ["cron"]}
    cells = "return [...document.querySelectorAll('#sessions td[data-label=Source]')]"
    assert set(window.run(f"{cells}.map((each) => each.innerText)")) == {"cron"}
    # What is typed narrows what is shown.
    identifier = window.run("return document.querySelector('#sessions .id').innerText")
    window.run("document.getElementById('find').focus()")
    window.press(*identifier[-13:])  # the time and the number: six digits alone may be a time
    shown = (
        "return [...document.querySelectorAll('#sessions tbody tr')].filter((row) => !row.hidden)"
    )
    assert window.run(f"{shown}.length") == 1
    # The address alone gives the same list again, and its next page.
    window.open(window.run("return location.href"))
    assert window.run(status).startswith(told)
    window.run("[...document.querySelectorAll('.turn a')].at(-1).focus()")
    window.press(ENTER)
    wait_until(lambda: "Shown: 201 to" in window.run(TEXT), "the next page is there")


def test_without_scripts_the_list_is_filtered_by_its_button(
    sites: dict[str, Agent], window: Chromium
) -> None:
    window.tell("Emulation.setScriptExecutionDisabled", value=True)
    window.open(f"{sites['large'].url}/sessions")
    assert not window.run("return document.documentElement.classList.contains('scripted')")
    window.run("document.querySelector('select[name=source]').focus()")
    window.press("t", "u", "i", TAB, TAB, ENTER)  # past the choice of homes to the button
    wait_until(lambda: "source=tui" in window.run("return location.href"), "the form is sent")
    cells = "return [...document.querySelectorAll('#sessions td[data-label=Source]')]"
    assert set(window.run(f"{cells}.map((each) => each.innerText)")) == {"tui"}


@pytest.mark.parametrize("secure", [True, False], ids=["secure", "another host"])
def test_a_click_copies_the_command(
    secure: bool, sites: dict[str, Agent], window: Chromium
) -> None:
    running = sites["demo"]
    url = running.url if secure else running.url.replace("127.0.0.1", NAME)
    window.tell("Browser.grantPermissions", permissions=["clipboardReadWrite"], origin=running.url)
    window.open(f"{url}/")
    assert window.run("return isSecureContext") == secure
    run = next(each for each in asked(running, "/api/v1/runs") if each["undoable_until"])
    command = f"hermes-exporter undo {run['run']}"
    window.run(f"document.querySelector('[aria-label=\"Copy {command}\"]').focus()")
    window.press(ENTER)
    button = f"return document.querySelector('[aria-label=\"Copy {command}\"]').innerText"
    wait_until(lambda: window.run(button) == "Copied", "the button says so")
    assert command in window.run("return document.getElementById('notice').innerText")
    window.open(f"{running.url}/sessions")
    window.run("document.getElementById('find').focus()")
    read = (
        "const done = arguments[0]; navigator.clipboard.readText().then(done, (e) => done(`${e}`))"
    )
    assert window.run_until_done(read) == command


def test_everything_is_reached_by_tab_and_seen_to_be_reached(
    sites: dict[str, Agent], window: Chromium
) -> None:
    for path in paths(sites["demo"]):
        window.open(sites["demo"].url + path)
        window.run("document.body.focus()")
        count = window.run(COUNT)
        reached = []
        for _ in range(count):
            window.press(TAB)
            reached.append(window.run(FOCUSED))
        assert reached[0]["text"] == "Skip to the content"
        assert {each["name"] for each in reached} <= {
            *("a", "button", "select", "input", "summary", "svg", "div")
        }
        assert [each for each in reached if each["outline"] < 2] == [], path
        assert "body" not in [each["name"] for each in reached], path


def test_the_first_link_skips_to_the_content(sites: dict[str, Agent], window: Chromium) -> None:
    window.open(f"{sites['demo'].url}/")
    window.press(TAB, ENTER)
    assert window.run("return document.activeElement.id") == "main"


def test_a_chart_tells_its_values_on_hover_and_focus(
    sites: dict[str, Agent], window: Chromium
) -> None:
    running = sites["demo"]
    window.open(f"{running.url}/?home=default")
    trend = asked(running, "/api/v1/trends")["homes"][0]
    of_hour = {at // 3600: number for number, at in enumerate(trend["at"])}  # the last of each
    first, *_, before, _ = of_hour.values()
    legend = (
        "return [...document.querySelectorAll('.chart')[0].querySelectorAll('.value')]"
        ".map((each) => each.innerText)"
    )
    newest = window.run(legend)
    window.run("document.querySelector('.chart svg').focus()")
    assert window.run(legend) == newest
    window.press(HOME)
    assert window.run(legend) == [format_count(trend[name][first]) for name in ("open", "dead")]
    assert "open" in window.run("return document.querySelector('.chart output').innerText")
    window.press(END, LEFT)
    assert window.run(legend) == [format_count(trend[name][before]) for name in ("open", "dead")]
    window.run("document.activeElement.blur()")
    assert window.run(legend) == newest
    box = window.run(
        "const svg = document.querySelector('.chart svg'); svg.scrollIntoView({block: 'center'});"
        "const box = svg.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]"
    )
    window.point(round(box[0] + box[2] * 0.15), round(box[1] + box[3] / 2))
    assert window.run("return document.querySelector('.chart .when').innerText") != ""
    shown = [int(each.replace(",", "")) for each in window.run(legend)]
    assert shown in [list(each) for each in zip(trend["open"], trend["dead"], strict=True)]
    assert window.run("return document.querySelectorAll('.chart .dot').length") == 2
    window.point(1, 1)
    assert window.run(legend) == newest


def test_the_page_follows_the_agent_and_says_when_it_is_gone(
    sites: dict[str, Agent], window: Chromium
) -> None:
    running = sites["demo"]
    window.open(f"{running.url}/")
    window.run("document.querySelector('h1').textContent = 'old'; return refresh()")
    wait_until(lambda: window.run("return document.querySelector('h1').innerText") != "old", "new")
    # What is being read is left alone.
    window.run("document.querySelector('h1').textContent = 'old'")
    window.run("document.querySelector('summary').click(); return refresh()")
    assert window.run("return document.querySelector('h1').innerText") == "old"
    window.run("document.querySelector('summary').click()")
    os.kill(running.pid, signal.SIGSTOP)
    try:
        # The kernel takes the connection of a stopped process, and no answer comes.
        set_offline(window, True)
        window.run("return refresh()")
        told = "return document.getElementById('notice').innerText"
        wait_until(lambda: "does not answer" in window.run(told), "the page says so")
    finally:
        os.kill(running.pid, signal.SIGCONT)
        set_offline(window, False)
    window.run("return refresh()")
    wait_until(lambda: window.run(told) == "", "the page is new again")
