"""Log lines: one line each, whatever is in them."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from exporter import logs
from tests.support import logging_state

HOSTILE = 'a "b"\nlevel=error \x1b[31m\u202e\u2028\x85 = \\ \udcff'


@pytest.fixture(autouse=True)
def preserved_logging() -> Iterator[None]:
    with logging_state.preserved():
        yield


def written(log_format: str, level: str = "info", **fields: object) -> str:
    stream = io.StringIO()
    logs.setup(level, log_format, stream)
    logs.get("agent").info("home appeared", **fields)
    return stream.getvalue()


def test_logfmt_has_time_level_component_phrase_and_fields() -> None:
    line = written("logfmt", home="default", sessions=3, share=0.25, up=True, version=None)
    assert re.fullmatch(
        r"ts=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=info component=agent "
        r'msg="home appeared" home=default sessions=3 share=0\.25 up=true version=null\n',
        line,
    )


def test_json_has_the_same_fields_with_their_types() -> None:
    entry = json.loads(written("json", home="default", sessions=3, share=0.25, up=True))
    del entry["ts"]
    assert entry == {
        "level": "info",
        "component": "agent",
        "msg": "home appeared",
        "home": "default",
        "sessions": 3,
        "share": 0.25,
        "up": True,
    }


def test_a_hostile_value_cannot_forge_a_line_or_move_the_terminal() -> None:
    line = written("logfmt", home=HOSTILE)
    assert line.count("\n") == 1
    assert line.rstrip("\n").isprintable()
    expected = r'home="a \"b\"\nlevel=error \x1b[31m\u202e\u2028\x85 = \\ \\udcff"'
    assert line.endswith(expected + "\n")


def test_json_keeps_a_hostile_value_readable_and_ascii() -> None:
    line = written("json", home=HOSTILE)
    assert line.isascii()
    assert line.count("\n") == 1
    assert json.loads(line)["home"] == HOSTILE.replace("\udcff", "\\udcff")


@pytest.mark.parametrize("log_format", logs.FORMATS)
def test_an_empty_value_and_a_long_one(log_format: str) -> None:
    line = written(log_format, empty="", long="x" * 100_000)
    assert 'empty=""' in line or '"empty":""' in line
    assert len(line) < 2200


def test_values_that_json_does_not_have_are_text() -> None:
    line = written("json", ratio=float("nan"), size=float("inf"), name=b"a\xff")
    entry = json.loads(line, parse_constant=lambda word: pytest.fail(word))
    assert (entry["ratio"], entry["size"], entry["name"]) == ("nan", "inf", "a\\xff")


def test_a_field_cannot_replace_level_or_time() -> None:
    assert written("json", level="debug", ts=0).count('"level":"info"') == 1


def test_lines_below_the_level_are_not_written() -> None:
    assert written("logfmt", level="warn") == ""
    assert written("logfmt", level="debug") != ""


def test_an_exception_is_one_line_and_its_traceback_only_shows_at_debug() -> None:
    for level, shown in (("info", False), ("debug", True)):
        stream = io.StringIO()
        logs.setup(level, "logfmt", stream)
        try:
            raise KeyError("x")
        except KeyError:
            logging.getLogger("asyncio").error("task failed", exc_info=True)
        line = stream.getvalue()
        assert line.count("\n") == 1
        assert "component=asyncio" in line
        assert "error=\"KeyError: 'x'\"" in line
        assert ("Traceback" in line) is shown


def test_a_closed_stderr_stops_nothing() -> None:
    program = (
        "import os, sys\n"
        "from exporter import logs\n"
        "logs.setup()\n"
        "os.close(2)\n"
        "logs.get('agent').info('nobody listens')\n"
        "print('still here')\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert answer.stdout == "still here\n"


def test_a_state_is_told_once_until_it_changes() -> None:
    changes = logs.StateChange()
    states = ["ok", "ok", "corrupt", "corrupt", "ok"]
    assert [changes.changed("home", state) for state in states] == [True, False, True, False, True]
    assert changes.changed("other", "ok"), "each thing has a state of its own"


def test_the_expected_first_state_needs_no_line() -> None:
    changes = logs.StateChange()
    assert not changes.changed("home", "ok", assumed="ok")
    assert changes.changed("home", "corrupt", assumed="ok")


def test_a_forgotten_thing_is_new_again() -> None:
    changes = logs.StateChange()
    changes.changed("home", "ok")
    changes.forget("home")
    assert changes.changed("home", "ok")


def test_a_quota_gives_out_so_many_lines_in_a_time() -> None:
    moment = 0.0
    quota = logs.LogQuota(2, 60.0, lambda: moment)
    assert [quota.take() for _ in range(3)] == [True, True, False]
    moment = 59.9
    assert not quota.take()
    moment = 60.0
    assert [quota.take() for _ in range(3)] == [True, True, False]
