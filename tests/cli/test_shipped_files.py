"""What an operator installs beside the program is in the wheel and reachable by its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from exporter.cli.shipped_files import FOLDERS, shipped
from tests.real.command import refusal, run
from tests.real.hermes import REPOSITORY


def test_every_folder_has_files_and_each_can_be_read() -> None:
    files = shipped()
    assert {name.rpartition("/")[0] for name in files} == set(FOLDERS)
    assert run("files").stdout.splitlines() == list(files)
    assert run("files", "runbooks/HermesAgentDown.md").stdout.startswith("# HermesAgentDown")
    listed = run("files", "completion/").stdout.splitlines()
    assert [name.rpartition("/")[2] for name in listed] == [
        "_hermes-exporter",
        "hermes-exporter.bash",
        "hermes-exporter.fish",
    ]


def test_a_folder_can_be_copied_and_a_slip_is_told(tmp_path: Path) -> None:
    run("files", "rules", "--to", tmp_path)
    alerts = REPOSITORY / "dashboards" / "rules" / "alerts.yaml"
    assert (tmp_path / "rules" / "alerts.yaml").read_bytes() == alerts.read_bytes()
    assert refusal("files", "rules/alert.yaml") == (
        2,
        "hermes-exporter: there is no file 'rules/alert.yaml', did you mean 'rules/alerts.yaml'?",
    )


@pytest.mark.xdist_group("wheel")
def test_the_wheel_has_them_in_a_bare_environment(tmp_path: Path) -> None:
    """Installed without this checkout; its dependencies are those of the running Python."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, "."],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    site = next((tmp_path / "bare" / "lib").glob("python*/site-packages"))
    install = ["install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run([sys.executable, "-m", "pip", *map(str, install)], check=True)
    environment = {**os.environ, "PYTHONPATH": f"{site}:{sysconfig.get_path('purelib')}"}
    told = subprocess.run(
        [python, "-m", "exporter", "files", "--json"],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    listed = {each["name"]: Path(each["path"]) for each in json.loads(told.stdout)}
    assert listed.keys() == shipped().keys()
    for name, path in listed.items():
        assert site in path.parents
        assert path.read_bytes() == shipped()[name].read_bytes(), name
