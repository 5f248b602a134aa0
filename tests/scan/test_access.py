"""What a home's owner may not read, and what `check` and `status` say about it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.command import run
from tests.support.small_homes import small_home

OWNER = 48_211
"""A user without a name: the tests are root, who may read everything."""


@pytest.fixture
def home() -> Iterator[Path]:
    # Not below pytest's own folder, which a test run beside this one closes to other users.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        home = small_home(Path(folder) / "home", 1)
        (home / ".hermes-exporter").mkdir(mode=0o700)
        for path in (home, *home.rglob("*")):
            os.chown(path, OWNER, OWNER)
        yield home


@pytest.mark.parametrize(
    ("part", "mode", "mended_by"),
    [
        ("", 0o000, "chmod u+rwx {home}"),
        pytest.param("state.db", 0, "chmod u+rw {home}/state.db", marks=pytest.mark.full),
        pytest.param("sessions", 0, "chmod u+rwx {home}/sessions", marks=pytest.mark.full),
        (".hermes-exporter", 0o000, "chmod u+rwx {home}/.hermes-exporter"),
        ("..", 0o700, "chmod o+x {above}"),
    ],
)
def test_check_names_the_root_cause_alone_and_the_command_that_mends_it(
    home: Path, part: str, mode: int, mended_by: str
) -> None:
    (home.parent if part == ".." else home / part).chmod(mode)
    options: list[str | Path] = ["--home", home, "--state-dir", "/nowhere/state"]
    checked = run("check", *options, "--json")
    assert (checked.returncode, checked.stderr) == (1, "")
    report = json.loads(checked.stdout)
    assert report["ok"] is False
    assert len(report["homes"][0]["cannot"]) == 1, report
    (cannot,) = report["homes"][0]["cannot"]
    assert f"uid {OWNER} may not" in cannot["why"]
    command = mended_by.format(home=home, above=home.parent)
    assert cannot["grant"] == command
    status = run("status", *options)
    assert status.returncode == 3
    assert status.stderr.count("\n") == 1  # and no line of the log says the same again
    subprocess.run(shlex.split(command), check=True)
    assert run("check", *options).returncode == 0


def test_a_profile_behind_a_closed_home_asks_for_the_same_command(home: Path) -> None:
    profile = small_home(home / "profiles/work", 1)
    for path in (home / "profiles", profile, *profile.rglob("*")):
        os.chown(path, OWNER, OWNER)
    options: list[str | Path] = ["--home", home, "--state-dir", "/nowhere/state"]
    assert len(json.loads(run("check", *options, "--json").stdout)["homes"]) == 2
    home.chmod(0)
    report = json.loads(run("check", *options, "--json").stdout)
    grants = [each["grant"] for seen in report["homes"] for each in seen["cannot"]]
    assert grants == [f"chmod u+rwx {home}"] * 2
    reaped = run("reap", "--yes", *options)
    assert reaped.returncode == 1
    assert reaped.stderr.count("\n") == 1  # and no line of the log says the same again
    subprocess.run(shlex.split(grants[0]), check=True)
    assert run("check", *options).returncode == 0


def test_a_part_of_another_owner_is_told_once_with_the_command_that_mends_it(home: Path) -> None:
    os.chown(home / "state.db", 0, 0)
    options: list[str | Path] = ["--home", home, "--state-dir", "/nowhere/state"]
    (seen,) = json.loads(run("check", *options, "--json").stdout)["homes"]
    (cannot,) = seen["cannot"]
    assert "state.db belongs to uid 0" in cannot["why"]
    assert cannot["grant"] == f"chown -R {OWNER} {home}"
    for command in ("reap", "prune", "sessions"):
        said = run(command, *options).stderr
        assert "cannot be read" in said
        assert "refused" not in said  # it is the same home
    subprocess.run(shlex.split(cannot["grant"]), check=True)
    assert run("check", *options).returncode == 0
