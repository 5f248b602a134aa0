"""The wheel has everything: modules, pages, and the runbooks that alerts link to."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.real.agent import agent
from tests.real.hermes import REPOSITORY
from tests.support.small_homes import small_home

pytestmark = pytest.mark.xdist_group("wheel")
PARTS = ("exporter", "dashboards", "deploy")
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
RUNBOOKS = sorted(file.stem for file in (REPOSITORY / "dashboards" / "runbooks").glob("*.md"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: other tests may be writing to the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in PARTS:
        shutil.copytree(REPOSITORY / name, source / name, ignore=ignored)
    for name in FILES:
        shutil.copy(REPOSITORY / name, source)
    pip(*("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source))
    (built,) = folder.glob("*.whl")
    return built


def pip(*words: str | Path) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", *quiet, *words], check=True)


def test_the_wheel_has_every_module(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    listed = ["git", "-C", str(REPOSITORY), "ls-files", "exporter"]
    assert set(subprocess.check_output(listed, text=True).split()) <= packed


def test_an_agent_from_the_wheel_serves_every_runbook_and_page(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    pip("install", "--no-deps", "--target", installed, wheel)
    home = small_home(tmp_path / "home")
    # Neither this folder nor the checkout, which the virtual environment points to, comes first.
    environment = {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    with agent(tmp_path, [home], environment=environment) as running:
        listed = running.get("/runbooks/")[1].decode()
        assert re.findall(r'<dt><a href="/runbooks/(\w+)"', listed) == RUNBOOKS
        for name in RUNBOOKS:
            status, body = running.get(f"/runbooks/{name}")
            assert status == 200
            assert f"<h1>{name}</h1>" in body.decode()
        page = running.get("/")[1].decode()
        assert "Open sessions: 3" in page
        for name in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
            assert running.get(name)[0] == 200
        (installed / "exporter/files/runbooks").rename(installed / "elsewhere")
    # So they were read from there, and not from the checkout.
    with agent(tmp_path, [home], environment=environment) as running:
        assert "This installation has no runbooks" in running.get("/runbooks/")[1].decode()
