"""Reports on a real terminal of 80 columns: nothing is wider, and no id is broken or cut."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from exporter.demo.home import make
from exporter.demo.state import write_settings, write_state
from tests.real.command import PROGRAM, run_json
from tests.real.hermes import REPOSITORY
from tests.real.terminal import PATIENCE_SECONDS, terminal

SCREEN = (24, 80)
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("narrow")
    now = time.time()
    home = make(str(folder), now=now)
    write_state(f"{folder}/state", home, now=now)
    config = write_settings(str(folder))
    return ["--home", home, "--state-dir", f"{folder}/state", "--config.file", config]


def shown(*words: str, answer: str = "") -> list[str]:
    """The lines of a report that a person sees."""
    command = [*PROGRAM, *words]
    with terminal(command, ENVIRONMENT, Path(REPOSITORY), SCREEN) as screen:
        if answer:
            screen.wait_for("[y/N]")
            screen.type(answer)
        assert screen.process.wait(PATIENCE_SECONDS) in (0, 3)
    lines = [_SCANNING.sub("", line).rstrip() for line in screen.output.split("\n")]
    report = [line for line in lines if not is_command(line)]
    assert [line for line in report if len(line) > SCREEN[1]] == []
    return lines


_SCANNING = re.compile(r"^(scanning\.\.\.( \d+ s)?)+")
"""A line that the report is written over; the terminal's output here is without its movements."""


def is_command(line: str) -> bool:
    """True for what is one line on purpose: a command to copy, and messages on stderr."""
    return line.lstrip().startswith("hermes-exporter") or "━" in line


def words_of(lines: list[str]) -> set[str]:
    return {word for line in lines for word in line.split()}


def test_status_and_sessions(where: list[str]) -> None:
    lines = shown("status", *where)
    assert "  verdicts  0 live, 21 held, 91 dead, 4 exempt, 0 unknown" in lines
    lines = shown("sessions", *where)
    assert lines[0].split() == ["session", "msgs", "verdict", "evidence"]
    listed = run_json("sessions", *where)
    assert {each["id"] for each in listed} <= words_of(lines)
    assert {each["verdict"] for each in listed} <= words_of(lines)


def test_a_reap_is_summed_up_and_says_a_reason_once(where: list[str]) -> None:
    lines = shown("reap", *where)
    assert " ".join(lines[0].split()) == (
        "home source sessions idle < 1d idle 1-7d idle 7-30d idle > 30d"
    )
    planned = [each["target"] for each in run_json("reap", *where)["plan"]["actions"]]
    assert set(planned[:20]) <= words_of(lines)
    assert "and 84 more; --all lists them" in lines
    assert len([line for line in lines if "the kernel knows of no lock" in line]) == 1


def test_a_prune_is_summed_up_by_age_and_lists_the_largest_under_their_policy(
    where: list[str],
) -> None:
    lines = shown("prune", *where)
    [head] = [line for line in lines if line.endswith(" < 7d  7-30d  30-90d  > 90d")]
    actions = run_json("prune", *where)["plan"]["actions"]
    [total] = [line.split() for line in lines if line.startswith("all ")]
    assert total[1] == str(len(actions))
    assert sum(int(each.replace("-", "0")) for each in total[4:]) == len(actions)
    assert head.split()[:4] == ["home", "policy", "items", "bytes"]
    largest = sorted(actions, key=lambda each: -each["bytes"])[:20]
    begun = [line for line in lines if line.startswith("The largest 20 of ")]
    assert len(begun) == 1
    names = [each["target"].rpartition("/")[2] for each in largest]
    found = {word.rpartition("/")[2] for word in words_of(lines)}
    whole = [name for name in names if name in found]
    cut = [word[:-1] for word in found if word.endswith("…")]
    # Of a name that is longer than the screen the end is cut off, which is a time, never an id.
    assert all(name in whole or any(name.startswith(each) for each in cut) for name in names)
    assert all(len(each) > len("request_dump_cron_000000000002_20260828_011543") for each in cut)


def test_history_and_what_a_purge_takes_and_leaves(where: list[str]) -> None:
    first, second = (
        run_json("prune", "--policy", policy, "--yes", *where)["run"]
        for policy in ("request_dumps", "empty_sessions")
    )
    lines = shown("history", *where)
    assert {first, second} <= words_of(lines)
    assert shown("history", first, *where)[0].split()[0] == "run"
    text = "\n".join(shown("purge", first, *where, answer="y"))
    assert f"default: the trash of 1 run ({first}), which took 96.0 KiB" in text
    assert "the trash of 2 other runs stays, which took " in text
    assert f"The trash of run {first} is gone: " in text
    text = "\n".join(shown("purge", *where, answer="y"))
    assert f"default: the trash of 1 run ({second})" in text
    assert "after that nothing stays in the trash" in text
    assert "The trash of all runs is gone: " in text
