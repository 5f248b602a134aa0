"""Reports: the same facts with colour on a terminal and as aligned text in a pipe."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from exporter.agent.run_result import ShownPlan
from exporter.cli import output
from exporter.cli.render import (
    check,
    history,
    plain_text,
    plan,
    prune_plan,
    rich_text,
    sessions,
    status,
)
from exporter.cli.render.blocks import Bar, Block, Cell, Column, Line, Table
from exporter.cli.render.status import why_down
from exporter.collectors.prune_reasons import why_unreachable
from exporter.config.prune import Prune, Trash, Upkeep
from exporter.evidence.blind_spots import blind_in_words
from exporter.evidence.models import Blindness
from exporter.pruner.models import Act, PruneAction, PrunePlan
from exporter.runs.models import Frees
from exporter.snapshot import Trouble
from exporter.text import escape_control, format_time
from exporter.web.pages.explanation import what_would_change
from tests.real.hermes import REPOSITORY

ROOT = REPOSITORY
SELECTION = ROOT / "exporter/pruner/decide/selection.py"
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "a\x1b[2J\x1b]0;owned\x07\r\nb\u202e\x9b31m"

HOME: dict[str, Any] = {
    "home": "default",
    "path": "/root/.hermes",
    "up": True,
    "blind": ["permissions", "pid_namespace"],
    "sessions": {"open": 412, "ended": 9588, "empty": 3564, "trivial": 3166},
    "verdicts": {"live": 3, "held": 12, "dead": 390, "exempt": 0, "unknown": 7},
    "disk": {"transcripts": 420 * 2**20, "state_db": 960 * 2**20, "logs": 4096, "trash": 0},
    "thresholds": [
        {"name": "transcripts", "value": 2**30, "high": 2**31, "low": 2**30, "pressure": False},
        {
            "name": "state_db_payload",
            "value": 2**29,
            "high": 2**31,
            "low": 2**30,
            "pressure": False,
        },
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
    "verdicts": {"live": None, "held": None, "dead": None, "exempt": None, "unknown": None},
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
REAP_PLAN: dict[str, Any] = {
    "plan": {
        "hash": "0123456789abcdef",
        "actions": [
            {
                "action": "end_session",
                "home": "default",
                "policy": None,
                "target": "20261116_033000_abcdef",
                "reason": "idle for 2d 15h; no process on this host has the database open",
                "bytes": 0,
            }
        ],
    },
    "executed": False,
    "run": None,
    "outcome": None,
    "done": 0,
    "skipped": [],
}
RUN: dict[str, Any] = {
    "run": "20261116T093000-3f2a",
    "kind": "prune",
    "home": "default",
    "started_at": 0.0,
    "finished_at": 1.0,
    "outcome": "partial",
    "actions": 12_345,
    "bytes": 2**30,
    "undoable_until": 9e9,
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
    assert plain_text.render(status.blocks({"homes": [HOME, DOWN], "agent": AGENT})) == (
        """\
default /root/.hermes up
  sessions  412 open, 9,588 ended; of the ended 3,564 empty, 3,166 trivial
  verdicts  3 live, 12 held, 390 dead, 0 exempt, 7 unknown
  blind     open files of other users' processes; processes outside this PID namespace
  disk      1.3 GiB
    state_db     960.0 MiB  ##############
    transcripts  420.0 MiB  ######
    logs           4.0 KiB  #
  pressure  disk_used, empty_sessions
    transcripts         1.0 GiB  ########          high 2.0 GiB, low 1.0 GiB
    state_db_payload  512.0 MiB  ####              high 2.0 GiB, low 1.0 GiB
    disk_used               93%  ################  high 90%, low 85%
    empty_sessions        3,564  ################  high 1,000, low 100
  would     reap 390 sessions; prune 4,102 items, 1.0 GiB, for the thresholds

bob /home/bob/.hermes DOWN (its database is damaged)
  sessions  ? open, ? ended; of the ended ? empty, ? trivial
  verdicts  ? live, ? held, ? dead, ? exempt, ? unknown
  disk      ?

hermes-exporter 0.1.0: reaper observe, prune observe
"""
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "40 sessions wait for process 1234 (chat, since 3d): dead in 21h, or when it closes"),
        (
            {"processes": 3, "dead_at": None},
            (
                "40 sessions wait for process 1234 and 2 more (chat, since 3d): "
                "dead when all of them close"
            ),
        ),
        (
            {"reason": "server", "sessions": 1},
            (
                "1 session waits for process 1234 (gateway or cron, since 3d): dead in 21h, "
                "or when it closes"
            ),
        ),
        (
            {"reason": "stopped"},
            "40 sessions wait for process 1234, stopped: nothing counts as idle beside it",
        ),
        (
            {"reason": "blind", "process": None},
            "40 sessions wait for what cannot be seen, or for the next scan",
        ),
        (
            {"reason": "routing", "process": None},
            "40 sessions wait for chat routing that cannot be read",
        ),
    ],
)
def test_status_says_what_sessions_without_a_verdict_wait_for(
    changes: dict[str, Any], said: str
) -> None:
    waiting = {
        "reason": "chat",
        "sessions": 40,
        "process": 1234,
        "processes": 1,
        "process_began_at": 1e9 - 3 * 86400,
        "dead_at": 1e9 + 21 * 3600,
    }
    home = HOME | {"scanned_at": 1e9, "waiting": [waiting | changes]}
    text = plain_text.render(status.blocks({"homes": [home], "agent": AGENT}))
    assert said in " ".join(text.split())


@pytest.mark.parametrize(
    ("mode", "acts_at", "said"),
    [
        ("observe", None, "no run acts by itself (prune.mode is observe)"),
        ("enforce", 1e9 + 120, f"a run acts from {format_time(1e9 + 120)} on"),
        ("enforce", 1e9 - 120, "a run acts at the next check"),
    ],
)
def test_status_says_since_when_a_threshold_is_over_and_when_a_run_acts(
    mode: str, acts_at: float | None, said: str
) -> None:
    row = {"name": "disk_used", "value": 0.93, "high": 0.9, "low": 0.85, "pressure": False}
    over = row | {"over_since": 1e9 - 180, "acts_at": acts_at}
    modes = {"reaper": "observe", "prune": mode}
    home = HOME | {"scanned_at": 1e9, "mode": modes, "thresholds": [over]}
    text = plain_text.render(status.blocks({"homes": [home], "agent": AGENT | {"mode": modes}}))
    assert "pressure  none yet; over: disk_used" in text
    since = f"over its high mark since {format_time(1e9 - 180)}"
    assert f"disk_used: {since}; {said}" in text
    failing = home | {"prune_blocked": ["run_failed"]}
    text = plain_text.render(status.blocks({"homes": [failing], "agent": AGENT | {"mode": modes}}))
    assert ("the last run failed" in text) == (mode == "enforce")


def test_status_says_what_is_in_the_place_of_a_home_that_is_down() -> None:
    why = "/home/bob/.hermes: it is a symlink, which is not followed; it leads to /data/bob"
    down = DOWN | {"trouble": "home_gone", "why_down": why}
    text = plain_text.render(status.blocks({"homes": [down], "agent": AGENT}))
    assert f"DOWN ({why})" in text


def test_no_reason_is_shown_as_a_key() -> None:
    for trouble in Trouble:
        assert why_down(trouble.value, "") != trouble.value or trouble is Trouble.NONE
    for blind in (*Blindness, "network_fs", "unknown_fs", "leases", "routing", "run_journal"):
        assert "_" not in blind_in_words([str(blind)]).replace("active_sessions", "")
    for reason in re.findall(r'yield "(\w+)"', SELECTION.read_text()):
        assert " " in why_unreachable(reason)


def test_status_of_many_homes_is_a_line_each_with_what_needs_attention_below() -> None:
    homes = [HOME, DOWN, HOME | {"home": "c", "blind": [], "thresholds": []}, DOWN]
    text = plain_text.render(status.blocks({"homes": homes, "agent": AGENT}))
    assert text == (
        """\
HOME     STATE  OPEN  LIVE  HELD  DEAD  EXEMPT  UNKNOWN  ENDED  EMPTY     DISK
default  up      412     3    12   390       0        7  9,588  3,564  1.3 GiB
bob      DOWN      ?     ?     ?     ?       ?        ?      ?      ?        ?
c        up      412     3    12   390       0        7  9,588  3,564  1.3 GiB
bob      DOWN      ?     ?     ?     ?       ?        ?      ?      ?        ?
default is blind to open files of other users' processes; processes outside this PID namespace
default is over disk_used, empty_sessions
bob is DOWN (its database is damaged)
bob is DOWN (its database is damaged)
hermes-exporter 0.1.0: reaper observe, prune observe
"""
    )


def test_status_of_many_homes_says_which_are_enforced_where_not_all_are() -> None:
    mode = {"reaper": "enforce", "prune": "observe"}
    observed = HOME | {"mode": AGENT["mode"]}
    homes = [observed, HOME | {"home": "b", "mode": mode}, observed, observed]
    text = plain_text.render(status.blocks({"homes": homes, "agent": AGENT | {"mode": mode}}))
    header, first, second, *_ = text.splitlines()
    assert header.endswith("  ENFORCED")
    assert (first.split()[-1], second.split()[-1]) == ("GiB", "reaper")
    assert text.endswith(": reaper enforce, prune observe, not in every home\n")


def test_status_warns_once_of_each_process_that_loses_what_it_writes() -> None:
    losing = HOME | {"deleted_wal_pids": [7, 9], "lockless_pids": [7, 8]}
    deleted = (
        "nothing that is written by processes 7, 9 is kept: its file was deleted; "
        "see runbook HermesPersistenceDead"
    )
    lockless = (
        "process 8 lost the locks on state.db: do not open it with anything else, restart; "
        "see runbook HermesLocklessHolders"
    )
    few = plain_text.render(status.blocks({"homes": [losing], "agent": AGENT}))
    assert f"  warning   {deleted}\n  warning   {lockless}\n" in few
    many = plain_text.render(status.blocks({"homes": [losing, HOME, HOME, HOME], "agent": AGENT}))
    assert f"default warning: {deleted}\ndefault warning: {lockless}\n" in many
    assert many.count("warning") == 2


def test_status_without_homes_says_what_to_do() -> None:
    text = plain_text.render(status.blocks({"homes": [], "agent": AGENT}))
    assert text.startswith("No Hermes home found. Name one with --home PATH.\n")


def test_sessions_show_verdict_and_strongest_evidence() -> None:
    assert plain_text.render(sessions.blocks([SESSION], {"verdict": "dead"}, now=91000)) == (
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
    assert plain_text.render(sessions.blocks([], filters, now=0)) == expected


def test_check_tells_what_cannot_be_seen_why_and_how_to_grant_it() -> None:
    assert plain_text.render(check.blocks(CHECK)) == (
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
    assert plain_text.render(check.blocks(report)) == "configuration: 1 problem\n"


def test_a_pipe_gets_long_ids_whole_and_on_one_line() -> None:
    session = SESSION | {"id": "x" * 500}
    lines = plain_text.render(sessions.blocks([session], {}, now=0)).splitlines()
    assert "x" * 500 in lines[1]


def on_screen(blocks: Iterable[Block], width: int) -> list[str]:
    return ESCAPE.sub("", rich_text.render(blocks, width)).splitlines()


@pytest.mark.parametrize("width", [200, 120, 80, 50])
def test_a_narrow_terminal_keeps_ids_whole_and_says_what_it_leaves_out(width: int) -> None:
    """An id is copied into the next command: it is never wrapped, whatever else is left out."""
    for identity in (SESSION["id"], "cron_000000000002_20261019_100149"):
        lines = on_screen(sessions.blocks([SESSION | {"id": identity}], {}, now=91000), width)
        assert any(identity in line and "dead" in line for line in lines)
        assert max(map(len, lines)) <= width
        titles = ["home", "session", "source", "age", "idle", "msgs", "verdict", "evidence"]
        text = " ".join(" ".join(lines).split())
        told = text.partition("(not shown, the terminal is too narrow: ")[2].partition(")")[0]
        named = told.split(", ") if told else []
        assert sorted([*lines[0].split(), *named]) == sorted(titles)


def test_an_id_wider_than_the_terminal_is_still_one_word() -> None:
    identity = "0123456789" * 7
    lines = on_screen(sessions.blocks([SESSION | {"id": identity}], {}, now=91000), 50)
    assert any(identity in line for line in lines)


@pytest.mark.parametrize("width", [80, 50])
def test_a_run_of_the_history_can_be_copied_from_a_narrow_terminal(width: int) -> None:
    other = RUN | {"home": "someone/profile"}
    lines = on_screen(history.history([RUN, other], now=86400.0), width)
    assert sum(RUN["run"] in line for line in lines) == 2
    assert max(map(len, lines)) <= width


def test_the_command_to_type_next_is_one_line_on_any_terminal() -> None:
    lines = on_screen(plan.blocks(REAP_PLAN, again=" --home /a/rather/long/path/to/a/home"), 50)
    command = (
        "hermes-exporter reap --plan 0123456789abcdef --yes --home /a/rather/long/path/to/a/home"
    )
    assert f"  {command}" in lines


@pytest.mark.parametrize("width", [120, 80, 60])
def test_no_word_of_a_squeezed_table_is_cut_off(width: int) -> None:
    words = " ".join(on_screen(plan.blocks(REAP_PLAN), width)).split()
    (action,) = REAP_PLAN["plan"]["actions"]
    idle, _, why = action["reason"].partition("; ")
    shown = f"{idle.removeprefix('idle for ')} {why}".split()
    assert [word for word in shown if word not in words] == []


def taken(act: Act, policy: str, target: str, size: int, frees: Frees) -> PruneAction:
    return PruneAction(
        kind=act, policy=policy, target=target, reason="", expected={}, bytes=size, frees=frees
    )


def test_a_plan_says_what_comes_free_when_and_what_that_waits_for() -> None:
    first = (
        taken(Act.PURGE_TRASH, "expired_trash", RUN["run"], 1024, Frees.NOW),
        taken(Act.DELETE_FILE, "request_dumps", "sessions/a.json", 2048, Frees.AT_PURGE),
        taken(Act.DELETE_PROJECT, "stale_checkpoints", "ab", 3072, Frees.AFTER_UPKEEP),
    )
    second = (
        taken(Act.DELETE_FILE, "request_dumps", "sessions/b.json", 4096, Frees.AT_PURGE),
        taken(Act.DELETE_SESSION, "old_sessions", "x", 5120, Frees.AFTER_UPKEEP),
    )
    plans = [
        ShownPlan("a", PrunePlan("/a", actions=first), Prune(upkeep=Upkeep(gc=True))),
        ShownPlan("b", PrunePlan("/b", actions=second), Prune(trash=Trash(keep_seconds=7 * 86400))),
    ]
    rows = [
        {
            "home": each.label,
            "policy": action.policy,
            "target": action.target,
            "reason": action.reason,
            "bytes": action.bytes,
        }
        for each in plans
        for action in each.plan.actions
    ]
    result = REAP_PLAN | {"plan": {"hash": "0123456789abcdef", "actions": rows}}
    text = plain_text.render(prune_plan.blocks(result, plans))
    assert text.partition("COMES FREE")[2].partition("\n\n")[0].partition("\n")[2] == (
        "at once         1.0 KiB  expired trash; on a nearly full disk also sure garbage\n"
        "with the trash  6.0 KiB  emptied 3d to 7d after the run, or by `purge`\n"
        "by VACUUM       5.0 KiB  rows of state.db, which shrinks when no process has it open "
        "(prune.upkeep.vacuum is off)\n"
        "by git gc       3.0 KiB  checkpoints of the store, when no process uses it "
        "(prune.upkeep.gc is on)"
    )


def test_the_terminal_shows_the_same_facts() -> None:
    blocks = list(status.blocks({"homes": [HOME], "agent": AGENT}))
    coloured = rich_text.render(blocks, 100)
    assert ESCAPE.search(coloured)
    bars = str.maketrans("", "", "#━─")
    words = [
        text.translate(bars).split()
        for text in (ESCAPE.sub("", coloured), plain_text.render(blocks))
    ]
    assert words[0] == words[1]


@pytest.mark.parametrize("render", [plain_text.render, rich_text.render])
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
    text = rich_text.render([Line((Cell("[bold]x[/bold] :smile:"),))], 80)
    assert text == "[bold]x[/bold] :smile:\n"


def test_wide_characters_keep_the_columns_straight() -> None:
    rows = ((Cell("日本"), Cell("x")), (Cell("ab"), Cell("y")))
    assert plain_text.render([Table((Column(), Column()), rows)]) == "日本  x\nab    y\n"


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
    "from exporter.cli import output\n"
    "from exporter.cli.render.blocks import Bar, Cell, Column, Line, Table, Tone\n"
    "row = (Cell('naïve 日本', Tone.BAD), Bar(0.5))\n"
    "output.show([Line((Cell('up', Tone.GOOD),)), Table((Column(), Column()), (row,))])\n"
)


def shown(environ: dict[str, str], stdout: int) -> subprocess.CompletedProcess[bytes]:
    environ = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environ, stdout=stdout, check=True
    )


def on_a_terminal(environ: dict[str, str]) -> bytes:
    """Return what a program writes if its standard output really is a terminal."""
    control, terminal = pty.openpty()
    try:
        shown(environ, terminal)
    finally:
        os.close(terminal)
    written = b""
    try:
        while chunk := os.read(control, 65536):
            written += chunk
    except OSError:
        pass  # the other end is closed: all is read
    finally:
        os.close(control)
    return written


def test_a_real_terminal_gets_colour_and_a_pipe_none() -> None:
    assert b"\x1b[32mup" in on_a_terminal({"TERM": "xterm", "LANG": "C.UTF-8"})
    assert b"\x1b" not in on_a_terminal({"TERM": "xterm", "NO_COLOR": "1"})
    assert b"\x1b" not in shown({"TERM": "xterm"}, subprocess.PIPE).stdout


def test_an_output_that_is_not_unicode_is_no_error() -> None:
    environ = {"PYTHONIOENCODING": "ascii", "TERM": "xterm"}
    assert b"na\\xefve" in shown(environ, subprocess.PIPE).stdout
    assert "##########.........." in ESCAPE.sub("", on_a_terminal(environ).decode("ascii"))


def test_visible_leaves_readable_text_alone() -> None:
    assert escape_control("naïve 日本 ✓") == "naïve 日本 ✓"
    assert escape_control("a\nb\udcff") == "a\\nb\\udcff"


@pytest.mark.parametrize(
    ("kinds", "change"),
    [
        (["activity"], "time without activity"),
        (["lease"], "the end of the process that names it"),
        (["lease", "heartbeat"], "the end of the process that names it and time without activity"),
    ],
)
def test_explain_names_a_process_only_where_one_is(kinds: list[str], change: str) -> None:
    """After `kill -9` of a chat there is none: only the last activity is a moment ago."""
    evidence = [{"kind": kind, "says": "live", "detail": "seen"} for kind in kinds]
    rules = [{"rule": "no_sign_of_life", "holds": False, "why": "seen"}]
    found = {"verdict": "live", "source": "cli", "evidence": evidence, "rules": rules}
    assert what_would_change(found) == change
