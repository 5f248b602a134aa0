"""Reports: the same facts with colour on a terminal and as aligned text in a pipe."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exporter.terminal import check, fancy, output, plain, sessions, status
from exporter.terminal.blocks import Bar, Cell, Column, Line, Table
from exporter.text import visible

ROOT = Path(__file__).parent.parent
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "a\x1b[2J\x1b]0;owned\x07\r\nb\u202e\x9b31m"

HOME: dict[str, Any] = {
    "home": "default",
    "path": "/root/.hermes",
    "up": True,
    "blind": ["permissions", "pid_namespace"],
    "sessions": {"open": 412, "ended": 9588, "empty": 3564, "trivial": 3166},
    "verdicts": {"live": 3, "held": 12, "dead": 390, "unknown": 7},
    "disk": {"transcripts": 420 * 2**20, "state_db": 960 * 2**20, "logs": 4096, "trash": 0},
    "thresholds": [
        {"name": "transcripts", "value": 2**30, "high": 2**31, "low": 2**30, "pressure": False},
        {"name": "disk_used", "value": 0.93, "high": 0.9, "low": 0.85, "pressure": True},
        {"name": "empty_sessions", "value": 3564, "high": 1000, "low": 100, "pressure": True},
    ],
    "would_reap": 390,
    "would_prune": {"items": 4102, "bytes": 2**30},
}
DOWN: dict[str, Any] = {
    "home": "bob",
    "path": "/home/bob/.hermes",
    "up": False,
    "trouble": "corrupt",
    "blind": [],
    "sessions": {"open": None, "ended": None, "empty": None, "trivial": None},
    "verdicts": {"live": None, "held": None, "dead": None, "unknown": None},
    "disk": {},
    "thresholds": [],
    "would_reap": None,
    "would_prune": None,
}
AGENT = {"version": "0.1.0", "mode": {"reaper": "observe", "prune": "observe"}}
SESSION: dict[str, Any] = {
    "home": "default",
    "id": "20261116_033000_abcdef",
    "source": "cli",
    "started_at": 1000.0,
    "last_activity_at": 4600.0,
    "messages": 1200,
    "verdict": "dead",
    "evidence": [
        {"kind": "lock_probe", "says": "dead", "detail": "nobody has the database open"},
        {"kind": "boot", "says": "dead", "detail": "older than this boot"},
    ],
}
CHECK: dict[str, Any] = {
    "ok": False,
    "config": [],
    "homes": [
        {
            "home": "default",
            "path": "/root/.hermes",
            "can": ["read state.db", "see locks"],
            "cannot": [{"what": "see processes", "why": "not root", "grant": "run as root"}],
        },
        {
            "home": None,
            "path": "/home/eve/.hermes",
            "can": [],
            "cannot": [{"what": "adopt", "why": "a symlink", "grant": ""}],
        },
    ],
}


class Screen(io.StringIO):
    """A terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_status_shows_each_home_on_one_screen() -> None:
    assert plain.render(status.blocks({"homes": [HOME, DOWN], "agent": AGENT})) == (
        """\
default /root/.hermes up
  sessions  412 open, 9,588 ended; of the ended 3,564 empty, 3,166 trivial
  verdicts  3 live, 12 held, 390 dead, 7 unknown
  blind     permissions, pid_namespace
  disk      1.3 GiB
    state_db     960.0 MiB  ##############
    transcripts  420.0 MiB  ######
    logs           4.0 KiB  #
  pressure  disk_used, empty_sessions
    transcripts     1.0 GiB  ##########            high 2.0 GiB, low 1.0 GiB
    disk_used           93%  ####################  high 90%, low 85%
    empty_sessions    3,564  ####################  high 1,000, low 100
  would     reap 390 sessions; prune 4,102 items, 1.0 GiB

bob /home/bob/.hermes DOWN (corrupt)
  sessions  ? open, ? ended; of the ended ? empty, ? trivial
  verdicts  ? live, ? held, ? dead, ? unknown
  disk      ?

hermes-exporter 0.1.0: reaper observe, prune observe
"""
    )


def test_status_of_many_homes_is_a_line_each_with_what_needs_attention_below() -> None:
    homes = [HOME, DOWN, HOME | {"home": "c", "blind": [], "thresholds": []}, DOWN]
    text = plain.render(status.blocks({"homes": homes, "agent": AGENT}))
    assert text == (
        """\
HOME     STATE  OPEN  LIVE  HELD  DEAD  UNKNOWN  ENDED  EMPTY     DISK
default  up      412     3    12   390        7  9,588  3,564  1.3 GiB
bob      DOWN      ?     ?     ?     ?        ?      ?      ?        ?
c        up      412     3    12   390        7  9,588  3,564  1.3 GiB
bob      DOWN      ?     ?     ?     ?        ?      ?      ?        ?
default is blind to permissions, pid_namespace
default is over disk_used, empty_sessions
bob is DOWN (corrupt)
bob is DOWN (corrupt)
hermes-exporter 0.1.0: reaper observe, prune observe
"""
    )


def test_status_without_homes_says_what_to_do() -> None:
    text = plain.render(status.blocks({"homes": [], "agent": AGENT}))
    assert text.startswith("No Hermes home found. Name one with --home PATH.\n")


def test_sessions_show_verdict_and_strongest_evidence() -> None:
    assert plain.render(sessions.blocks([SESSION], {"verdict": "dead"}, now=91000)) == (
        """\
HOME     SESSION                 SOURCE    AGE  IDLE   MSGS  VERDICT  EVIDENCE
default  20261116_033000_abcdef  cli     1d 1h    1d  1,200  dead     """
        """lock_probe: nobody has the database open

1 open session with verdict dead
"""
    )


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, "No open sessions\n"),
        ({"verdict": "dead", "source": "cli"}, "No open sessions with verdict dead, source cli\n"),
    ],
)
def test_no_sessions_names_the_filters_in_force(filters: dict[str, str], expected: str) -> None:
    assert plain.render(sessions.blocks([], filters, now=0)) == expected


def test_check_tells_what_cannot_be_seen_why_and_how_to_grant_it() -> None:
    assert plain.render(check.blocks(CHECK)) == (
        """\
configuration: ok

default /root/.hermes
  can  read state.db
  can  see locks
  cannot see processes
    because      not root
    to grant it  run as root

not watched /home/eve/.hermes
  cannot adopt
    because  a symlink
"""
    )


def test_check_of_a_bad_configuration_counts_its_problems_and_claims_nothing_else() -> None:
    report = {"ok": False, "config": ["a.yaml:1: x: bad"], "homes": []}
    assert plain.render(check.blocks(report)) == "configuration: 1 problem\n"


def test_a_pipe_gets_long_ids_whole_and_on_one_line() -> None:
    session = SESSION | {"id": "x" * 500}
    lines = plain.render(sessions.blocks([session], {}, now=0)).splitlines()
    assert "x" * 500 in lines[1]


@pytest.mark.parametrize("width", [200, 100, 80, 60, 40])
def test_a_narrow_terminal_wraps_and_loses_nothing(width: int) -> None:
    """Each cell is read down its column, so the check is on the letters, not on their order."""
    session = SESSION | {"id": "0123456789" * 7, "evidence": []}
    text = ESCAPE.sub("", fancy.render(sessions.blocks([session], {}, now=0), width))
    assert max(map(len, text.splitlines())) <= width
    assert all(text.count(digit) >= 7 for digit in "0123456789")


def test_the_terminal_shows_the_same_facts() -> None:
    blocks = list(status.blocks({"homes": [HOME], "agent": AGENT}))
    coloured = fancy.render(blocks, 100)
    assert ESCAPE.search(coloured)
    bars = str.maketrans("", "", "#━─")
    words = [
        text.translate(bars).split() for text in (ESCAPE.sub("", coloured), plain.render(blocks))
    ]
    assert words[0] == words[1]


@pytest.mark.parametrize("render", [plain.render, fancy.render])
def test_no_name_can_act_on_the_terminal(render: Any) -> None:
    home = HOME | {"home": HOSTILE, "path": HOSTILE, "blind": [HOSTILE]}
    session = SESSION | {"id": HOSTILE, "source": HOSTILE, "home": HOSTILE}
    missing = {"what": HOSTILE, "why": HOSTILE, "grant": HOSTILE}
    checked = CHECK | {
        "homes": [{"home": HOSTILE, "path": HOSTILE, "can": [], "cannot": [missing]}]
    }
    text = "".join(
        render(blocks)
        for blocks in (
            status.blocks({"homes": [home], "agent": AGENT}),
            sessions.blocks([session], {"source": HOSTILE}, now=0),
            check.blocks(checked),
        )
    )
    left = ESCAPE.sub("", text).replace("\n", "")
    assert left.isprintable()


def test_rich_markup_in_a_name_is_text() -> None:
    text = fancy.render([Line((Cell("[bold]x[/bold] :smile:"),))], 80)
    assert text == "[bold]x[/bold] :smile:\n"


def test_wide_characters_keep_the_columns_straight() -> None:
    rows = ((Cell("日本"), Cell("x")), (Cell("ab"), Cell("y")))
    assert plain.render([Table((Column(), Column()), rows)]) == "日本  x\nab    y\n"


def test_a_small_share_is_still_seen_and_a_bar_never_overflows() -> None:
    assert [Bar(ratio).cells() for ratio in (-1, 0, 0.0001, 0.5, 1, 7)] == [0, 0, 1, 10, 20, 20]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_colour_only_where_it_is_welcome(environ: dict[str, str], expected: bool) -> None:
    assert output.wants_colour(Screen(), environ) is expected
    assert output.wants_colour(io.StringIO(), environ) is False
    screen = Screen()
    output.show([Line((Cell("up"),))], screen, environ)
    output.show(status.blocks({"homes": [HOME], "agent": AGENT}), screen, environ)
    assert ("\x1b" in screen.getvalue()) is expected


def test_json_is_ascii_and_has_nothing_for_a_terminal_to_act_on() -> None:
    stream = io.StringIO()
    output.show_json({"home": HOSTILE}, stream)
    assert json.loads(stream.getvalue()) == {"home": HOSTILE}
    assert stream.getvalue().replace("\n", "").isprintable()
    assert stream.getvalue().isascii()


PROGRAM = (
    "from exporter.terminal import output\n"
    "from exporter.terminal.blocks import Bar, Cell, Column, Line, Table, Tone\n"
    "row = (Cell('naïve 日本', Tone.BAD), Bar(0.5))\n"
    "output.show([Line((Cell('up', Tone.GOOD),)), Table((Column(), Column()), (row,))])\n"
)


def shown(environ: dict[str, str], stdout: int) -> subprocess.CompletedProcess[bytes]:
    environ = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environ, stdout=stdout, check=True
    )


def on_a_terminal(environ: dict[str, str]) -> bytes:
    """What a program writes when its standard output really is a terminal."""
    control, terminal = pty.openpty()
    try:
        shown(environ, terminal)
        return os.read(control, 65536)
    finally:
        os.close(terminal)
        os.close(control)


def test_a_real_terminal_gets_colour_and_a_pipe_none() -> None:
    assert b"\x1b[32mup" in on_a_terminal({"TERM": "xterm", "LANG": "C.UTF-8"})
    assert b"\x1b" not in on_a_terminal({"TERM": "xterm", "NO_COLOR": "1"})
    assert b"\x1b" not in shown({"TERM": "xterm"}, subprocess.PIPE).stdout


def test_an_output_that_is_not_unicode_is_no_error() -> None:
    environ = {"PYTHONIOENCODING": "ascii", "TERM": "xterm"}
    assert b"na\\xefve" in shown(environ, subprocess.PIPE).stdout
    assert "##########.........." in ESCAPE.sub("", on_a_terminal(environ).decode("ascii"))


def test_visible_leaves_readable_text_alone() -> None:
    assert visible("naïve 日本 ✓") == "naïve 日本 ✓"
    assert visible("a\nb\udcff") == "a\\nb\\udcff"
