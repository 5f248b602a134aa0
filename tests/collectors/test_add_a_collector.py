"""A collector is one file, as CONTRIBUTING says: everything else follows from its declarations.

The file and its test are those that CONTRIBUTING shows, put into a copy of this tree with an
interpreter of its own, so that the workers run the copy too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from exporter import collectors
from exporter.collectors.series_budget import worst_case, worst_case_of_agent
from exporter.demo.home import make
from tests.real.agent import agent
from tests.real.command import run
from tests.real.hermes import REPOSITORY
from tests.real.prometheus import check_metrics

COPIED = ("exporter", "tests", "docs", "dashboards")
COPIED_FILES = ("CONTRIBUTING.md", "Makefile", "README.md", "pyproject.toml")
HELD_BY = (
    "tests/collectors/test_skills.py",
    *("tests/collectors/test_series_budget.py", "tests/reference", "tests/test_layout.py"),
    *("tests/dashboards/test_rules_metrics.py", "tests/dashboards/test_dashboards.py"),
    "tests/collectors/test_collectors.py::test_the_demo_shows_nearly_every_metric",
    "tests/collectors/test_collectors.py::test_no_label_has_a_value_that_was_not_declared",
)
"""Its own test, and those that read what collectors declare, or what is written from it."""
pytestmark = pytest.mark.xdist_group("add_a_collector")


def recipe() -> tuple[str, str, str]:
    """The name of the file that CONTRIBUTING shows, its content, and its test."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    section = text.partition("\n## Add a collector\n")[2].partition("\n## ")[0]
    name = re.search(r"`exporter/collectors/(\w+\.py)`", section)
    code, test = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert name is not None
    assert f"`tests/collectors/test_{name[1]}`" in section
    return name[1], code, test


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this tree with the one file more, and a place for its test."""
    copy = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in COPIED:
        shutil.copytree(REPOSITORY / name, copy / name, ignore=ignored)
    for name in COPIED_FILES:
        shutil.copy(REPOSITORY / name, copy / name)
    name, code, test = recipe()
    (copy / "exporter" / "collectors" / name).write_text(code)
    (copy / "tests" / "collectors" / f"test_{name}").write_text(test)
    return copy


@pytest.fixture(scope="module")
def python(tree: Path) -> str:
    """An interpreter that finds the copy, also with `-I`, as workers are started."""
    folder = tree / ".venv"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    places = [str(tree), *(path for path in sys.path if path.endswith("-packages"))]
    (packages / "tree.pth").write_text("\n".join(places))
    return str(folder / "bin" / "python")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two skills that are in use, one that is archived."""
    made = Path(make(str(tmp_path_factory.mktemp("demo")), now=time.time()))
    for name in ("drawing/svg", "notes", ".archive/old"):
        (made / "skills" / name).mkdir(parents=True)
        (made / "skills" / name / "SKILL.md").write_text("# A skill\n")
    return made


def textfile(folder: Path, home: Path, python: str, *flags: str) -> str:
    file = folder / "hermes.prom"
    where: list[str | Path] = ["--home", home, "--state-dir", folder / "state"]
    done = run("textfile", file, *where, *flags, program=(python, "-I", "-m", "exporter"))
    assert done.returncode == 0, done.stderr
    return file.read_text()


def test_its_series_are_written(home: Path, python: str, tmp_path: Path) -> None:
    text = textfile(tmp_path, home, python)
    assert re.findall(r'^hermes_skills\{home="[^"]+",(.*)$', text, re.MULTILINE)[:2] == [
        'state="active"} 2.0',
        'state="archived"} 1.0',
    ]
    assert 'hermes_exporter_collector_success{collector="skills"} 1.0' in text
    assert check_metrics(text) == ""


def test_its_flag_switches_it_off(home: Path, python: str, tmp_path: Path) -> None:
    text = textfile(tmp_path, home, python, "--no-collector.skills")
    assert "hermes_sessions_open" in text
    assert "skills" not in text


def test_the_agent_serves_it(home: Path, python: str, tmp_path: Path) -> None:
    with agent(tmp_path, [home], program=(python, "-I", "-m", "exporter")) as running:
        counted = running.metrics().by("hermes_skills", "home", "state")
        (label,) = {label for label, _ in counted if not label.endswith("/work")}
        assert counted[label, "active"] == 2
        assert counted[label, "archived"] == 1


def test_the_reference_and_the_budget_follow(tree: Path, python: str) -> None:
    """`make docs` writes them anew; then the tests that hold them pass without another edit."""
    made = subprocess.run(
        ["make", "-o", "setup", "docs", f"PYTHON_IN_VENV={python}"],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    page = (tree / "docs" / "metrics.md").read_text()
    assert "Switched off by `--no-collector.skills`" in page
    assert "| `hermes_skills` | gauge | `home`, `state` (active, archived) | " in page
    # Without its own: a tree in which the recipe was followed to the letter has it already.
    others = [each for each in collectors.collectors() if each.name != "skills"]
    declared = [metric for each in others for metric in each.descriptions]
    assert f"{worst_case(declared) + 2} if it has everything at once" in page
    agent_series = "import exporter.collectors as c, exporter.collectors.series_budget as b\n"
    agent_series += "print(b.worst_case_of_agent(c.collectors()))"
    told = subprocess.check_output([python, "-I", "-c", agent_series], text=True)
    assert int(told) == worst_case_of_agent(others) + 2
    tested = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *HELD_BY],
        cwd=tree,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
