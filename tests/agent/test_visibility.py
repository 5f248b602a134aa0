"""`check` names what is really missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.small_homes import small_home


def test_root_without_the_right_to_look_is_told_which_right(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    without = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]
    check = [sys.executable, "-m", "exporter", "check", "--json", "--home", str(home)]
    state = ["--state-dir", str(tmp_path / "state")]
    with subprocess.Popen(
        ["setpriv", "--reuid", "65534", "--clear-groups", "sleep", "300"]
    ) as other:
        try:
            told = subprocess.run([*without, *check, *state], capture_output=True, text=True)
        finally:
            other.kill()
    (seen,) = json.loads(told.stdout)["homes"]
    (missing,) = [
        each for each in seen["cannot"] if each["what"] == "see who has the database open"
    ]
    assert "CAP_SYS_PTRACE" in missing["why"]
    assert "run as root" not in missing["grant"]


def test_a_symlinked_database_is_told_as_that_with_a_way_on(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    (home / "state.db").rename(tmp_path / "elsewhere.db")
    (home / "state.db").symlink_to(tmp_path / "elsewhere.db")
    check = [sys.executable, "-m", "exporter", "check", "--json", "--home", str(home)]
    state = ["--state-dir", str(tmp_path / "state")]
    told = subprocess.run([*check, *state], capture_output=True, text=True)
    assert told.returncode == 1
    (seen,) = json.loads(told.stdout)["homes"]
    (missing,) = seen["cannot"]
    assert "state.db is a symlink" in missing["why"]
    assert missing["grant"].startswith("put the real file or folder there")
