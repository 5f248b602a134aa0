"""A policy that is added exactly as CONTRIBUTING.md says works from the command line to undo."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.real.agent import Agent, Metrics
from tests.real.hermes import REPOSITORY
from tests.support.removers import picture
from tests.support.running_agent import when
from tests.support.small_homes import small_home

POLICY = "cron_output"
ITS_TEST = f"tests/pruner/decide/policies/test_{POLICY}.py"
JOB = "cron/output/0123456789ab"
OLD = f"{JOB}/2026-01-01_00-00-00.md"
YOUNG = f"{JOB}/2026-06-01_00-00-00.md"
NOTES = f"{JOB}/my notes.md"
DAY = 86400.0


def recipe() -> tuple[str, str, str]:
    """The line of settings, the file and its test, as CONTRIBUTING.md has them."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    section = text.partition("\n## Add a prune policy\n")[2].partition("\n## ")[0]
    line, file, test = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert f"`{ITS_TEST}`" in section
    return line, file, test


class Tree:
    """A copy of the package, with an interpreter that finds it and not ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("exporter", "tests"):
            shutil.copytree(REPOSITORY / name, path / name, ignore=ignored)
        shutil.copy(REPOSITORY / "pyproject.toml", path)
        venv.create(path / ".venv", symlinks=True)
        self.python = path / ".venv/bin/python"
        # Workers start isolated, so the copy has to be where an interpreter looks by itself.
        installed = [each for each in sys.path if each.endswith(("site-packages", "dist-packages"))]
        [libraries] = path.glob(".venv/lib/python3*/site-packages")
        (libraries / "tree.pth").write_text("\n".join([str(path), *installed, ""]))

    def add(self, line: str, file: str, test: str) -> None:
        settings = self.path / "exporter/config/prune.py"
        text = settings.read_text()
        following = "    empty_sessions: PolicySettings = "
        before, found, after = text.partition(following)
        assert found
        settings.write_text(before + line + found + after)
        (self.path / f"exporter/pruner/decide/policies/{POLICY}.py").write_text(file)
        (self.path / ITS_TEST).write_text(test)

    def run(self, *words: str | Path) -> str:
        done = subprocess.run(
            [self.python, "-m", *words],
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def agent(self, folder: Path, home: Path) -> Iterator[Agent]:
        """Serve a home that is scanned every second."""
        file, log = folder / "agent.yml", folder / "agent.log"
        file.write_text("scan: {interval: 1s}\n")
        command: list[str | Path] = [self.python, "-m", "exporter", "serve"]
        command += ["--web.listen-address", "127.0.0.1:0", "--config.file", file]
        command += ["--home", home, "--state-dir", folder]
        with (
            log.open("w") as output,
            subprocess.Popen(command, cwd=self.path, stdout=output, stderr=output) as process,
        ):
            try:
                yield Agent(process, log)
            finally:
                process.terminate()

    def command(self, *words: str | Path) -> Any:
        return json.loads(self.run("exporter", *words, "--json"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    made = Tree(tmp_path_factory.mktemp("tree"))
    made.add(*recipe())
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = small_home(tmp_path / "home")
    (home / JOB).mkdir(parents=True)
    for name, days in ((OLD, 60), (YOUNG, 2), (NOTES, 60)):
        (home / name).write_text("# Nothing to report\n")
        when = time.time() - days * DAY
        os.utime(home / name, (when, when))
    return home


def files(home: Path) -> dict[str, Any]:
    """All but the database, whose sidecars come and go."""
    found = picture(home)
    return {name: each for name, each in found.items() if not name.startswith("state.db")}


def test_the_test_of_the_recipe_passes(tree: Tree) -> None:
    assert "1 passed" in tree.run("pytest", "-q", "-p", "no:cacheprovider", "-n", "0", ITS_TEST)


def test_it_is_planned_taken_and_given_back(tree: Tree, home: Path, tmp_path: Path) -> None:
    where: list[str | Path] = ["--home", home, "--state-dir", tmp_path / "state"]
    before = files(home)
    shown = tree.command("prune", "--policy", POLICY, *where)
    [action] = shown["plan"]["actions"]
    assert (action["action"], action["policy"], action["target"]) == ("delete_file", POLICY, OLD)
    assert action["reason"] == "the output of a cron job, 60d old"
    assert action["bytes"] > 0
    assert files(home) == before

    plan = shown["plan"]["hash"]
    done = tree.command("prune", "--policy", POLICY, "--plan", plan, "--yes", *where)
    assert (done["done"], done["skipped"], done["outcome"]) == (1, [], "done")
    assert files(home) == {name: each for name, each in before.items() if name != OLD}

    exported = tmp_path / "metrics.prom"
    tree.run("exporter", "textfile", exported, *where)
    metrics = exported.read_text().splitlines()
    assert f'hermes_prune_deleted_total{{home="default",policy="{POLICY}"}} 1.0' in metrics
    assert f'hermes_prune_freed_bytes_total{{home="default",policy="{POLICY}"}} 0.0' in metrics

    undone = tree.command("undo", done["run"], *where)
    assert (undone["restored"], undone["failed"]) == (1, [])
    assert files(home) == before


def test_an_older_version_gives_back_what_it_took(tree: Tree, home: Path, tmp_path: Path) -> None:
    """This tree has no such policy; its journal has one."""
    where: list[str | Path] = ["--home", home, "--state-dir", tmp_path / "state"]
    before = files(home)
    done = tree.command("prune", "--policy", POLICY, "--yes", *where)
    assert files(home) != before
    command = [sys.executable, "-m", "exporter", "undo", done["run"], *where, "--json"]
    undone = subprocess.run(
        command, cwd=REPOSITORY, check=True, capture_output=True, text=True, timeout=300
    )
    assert json.loads(undone.stdout)["restored"] == 1
    assert files(home) == before


def test_the_agent_shows_what_it_could_free(tree: Tree, home: Path, tmp_path: Path) -> None:
    def is_known(metrics: Metrics) -> bool:
        return (POLICY,) in metrics.by("hermes_retention_eligible", "policy")

    with tree.agent(tmp_path, home) as running:
        metrics = when(running, is_known, "the agent has looked at the policies")
    where = {"home": "default", "policy": POLICY}
    assert metrics.value("hermes_retention_eligible", **where) == 1
    size = (home / OLD).stat().st_blocks * 512
    assert metrics.value("hermes_disk_reclaimable_bytes", **where) == size
    oldest = metrics.value("hermes_retention_oldest_timestamp_seconds", **where)
    assert oldest == pytest.approx((home / OLD).stat().st_mtime)


def test_settings_command_line_metrics_and_pages_know_it(tree: Tree) -> None:
    assert POLICY in tree.run("exporter", "help", "prune")
    assert POLICY in tree.run("exporter.reference.command_line", "bash")
    configuration = tree.run("exporter.reference.configuration")
    assert f"    {POLICY}: {{older_than: 30d}}" in configuration
    assert f"| `prune.policies.{POLICY}` |" in configuration
    page = tree.run("exporter.reference.metrics")
    [values] = re.findall(r"^- `policy` of .*: (.*)$", page, flags=re.MULTILINE)
    assert POLICY in values.split(", ")
