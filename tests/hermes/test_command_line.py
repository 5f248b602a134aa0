"""Command lines, parsed as the parsers of the real releases parse them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from exporter.hermes.process_kinds import ProcessKind, Role, classify
from tests.real.hermes import python_for

ID = "20260102_030405_abcdef"
RELEASES = ("0.13.0", "0.16.0", "0.19.0")

BEFORE: tuple[list[str], ...] = (
    [],
    ["-p", "coder"],
    ["--yolo"],
    ["-z", ""],
    ["-z", "words"],
    ["-r", ID],
    ["-c", "a", "b"],
)
AFTER: tuple[list[str], ...] = (
    [],
    ["-q", ""],
    ["-q="],
    ["-Qq="],
    ["--query", ""],
    ["--query="],
    ["-q", "words"],
    ["-qwords"],
    ["--quer", "words"],
    ["-q", "words", "-q", ""],
    ["-q", "-c"],
    ["-q", "--profile=coder", "words"],
    ["--image", "x.png"],
    ["--image", ""],
    ["-q", "", "--image", "x.png"],
    ["--resum", ID],
    [f"-r{ID}"],
    [f"-r={ID}"],
    [f"--res={ID}"],
    ["--cont"],
    ["-cNAME"],
    ["-c"],
    ["-q", "words", "-c"],
    ["-q", "words", f"-Qr{ID}"],
    ["--tui", "-q", "words"],
)
LINES = [
    *(["chat", *after] for after in AFTER),
    *(
        [*before, *line]
        for before, line in itertools.product(BEFORE, ([], ["chat"], ["chat", "-q", "words"]))
    ),
    *([f"--resum={ID}"], [f"-r{ID}"], ["--cont"], ["-cNAME"], ["--res", ID]),
]


def role(line: list[str]) -> Role:
    words = ["/opt/venv/bin/python3", "/opt/venv/bin/hermes", *line]
    return classify(b"".join(word.encode() + b"\0" for word in words))


@pytest.mark.parametrize("version", RELEASES)
def test_our_parser_never_contradicts_the_real_parser(version: str, tmp_path: Path) -> None:
    """Our parser may know less than Hermes, but it must never claim too much.

    It may say one-shot only if Hermes answers once and ends. It may say that a process resumes
    nothing only if Hermes resumes nothing.
    """
    home = tmp_path / "home"
    (home / "profiles" / "coder").mkdir(parents=True)
    answers = python_for(version).run("parse_arguments", home, lines=LINES)
    understood = 0
    for line, (mode, resumes) in zip(LINES, answers, strict=True):
        found = role(line)
        if mode == "exit":
            continue
        understood += found.kind is not ProcessKind.HERMES
        assert found.kind is not ProcessKind.MAINTENANCE, line
        assert found.kind is not ProcessKind.ONESHOT or mode == "oneshot", line
        assert found.may_resume or not resumes, line
    assert understood > 20


@pytest.mark.parametrize("version", ["0.13.0", "0.19.0"])
def test_maintenance_commands_load_no_plugin(version: str, tmp_path: Path) -> None:
    """A plugin may run agents in threads of the command that loads it."""
    home = tmp_path / "home"
    commands = [["sessions", "list"], ["insights"], ["status"], ["logs"], ["doctor"]]
    commands[:0] = [["backup", "-o", str(tmp_path / "backup.zip")]]
    loaded = python_for(version).run("load_plugins", home, commands=commands)
    for command, plugin_ran in zip(commands, loaded, strict=True):
        assert not (plugin_ran and role(command).kind is ProcessKind.MAINTENANCE), command
    assert loaded[-1], "doctor loads plugins, so this test can see one"
