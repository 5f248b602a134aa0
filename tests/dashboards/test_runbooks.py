"""Runbooks: one for every alert, and every command in them can be typed as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from exporter.cli import commands
from exporter.cli.parser import Parser
from tests.real.hermes import NEWEST, REPOSITORY, python_for

RUNBOOKS = REPOSITORY / "dashboards" / "runbooks"
PAGES = sorted(RUNBOOKS.glob("*.md"))
HEADINGS = ["What it means", "How bad it is", "What to run", "How to tell it is fixed"]


def alerts() -> set[str]:
    rules = yaml.safe_load((REPOSITORY / "dashboards" / "rules" / "alerts.yaml").read_text())
    return {rule["alert"] for group in rules["groups"] for rule in group["rules"]}


def lines(page: Path) -> Iterator[str]:
    """What a reader may type: lines of shell blocks, and code within a sentence."""
    text = page.read_text()
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield from block.splitlines()
    yield from re.findall(r"(?<!`)`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def typed(program: str, page: Path) -> list[list[str]]:
    """The command lines of one program, as words."""
    words = [shlex.split(line) for line in lines(page) if line.startswith(f"{program} ")]
    return [line[1:] for line in words]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {page.stem for page in PAGES} == alerts()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_runbook_says_what_on_call_asks(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    assert typed("hermes-exporter", page), "no command of ours to run"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_our_commands_are_understood(page: Path) -> None:
    for words in typed("hermes-exporter", page):
        if words != ["--version"]:
            Parser(words[0], commands.load(words[0])).parse(words[1:])


def test_commands_of_hermes_exist(tmp_path: Path) -> None:
    """The real program lists them in its help."""
    wanted: dict[str, set[str]] = {}
    for page in PAGES:
        for command, *rest in typed("hermes", page):
            wanted.setdefault(command, set()).update(rest[:1])
    assert wanted
    for command, parts in sorted(wanted.items()):
        assert parts <= set(re.findall(r"^    ([a-z-]+)", hermes_help(command, tmp_path), re.M))


def hermes_help(command: str, folder: Path) -> str:
    hermes = python_for(NEWEST)
    return subprocess.run(
        [str(hermes.python), str(hermes.program), command, "--help"],
        env=hermes.environment(folder / "home"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_runbooks_name_only_alerts_that_there_are() -> None:
    named = {
        name for page in PAGES for name in re.findall(r"\bHermes[A-Z][A-Za-z]+", page.read_text())
    }
    assert named <= alerts()


@pytest.mark.parametrize(
    ("alert", "found"),
    [
        ("HermesPersistenceDead", ["state.db-wal (deleted)"]),
        ("HermesWalGrowing", ["state.db"]),
        ("HermesLocklessHolders", ["state.db", "state.db-wal (deleted)"]),
    ],
)
def test_the_listing_of_open_files_names_process_and_descriptor(
    alert: str, found: list[str], tmp_path: Path
) -> None:
    """The command as it stands in the runbook, with this process as the one to be found."""
    (command,) = [each for each in lines(RUNBOOKS / f"{alert}.md") if each.startswith("find ")]
    wal = tmp_path / "state.db-wal"
    with open(tmp_path / "state.db", "w") as database, open(wal, "w") as log:
        wal.unlink()
        numbers = {"state.db": database.fileno(), "state.db-wal (deleted)": log.fileno()}
        # Its exit status tells only whether some process ended meanwhile.
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert sorted(line for line in done.stdout.splitlines() if str(tmp_path) in line) == sorted(
        f"/proc/{os.getpid()}/fd/{numbers[name]} -> {tmp_path}/{name}" for name in found
    )
