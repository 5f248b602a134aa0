"""axe-core, which finds obstacles for people who use a page without a mouse or without sight."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.real.chromium import Chromium
from tests.real.hermes import REPOSITORY

_WANTED = Path(__file__).parents[1] / "web" / "pages" / "axe"
_FOLDER = REPOSITORY / ".cache" / "axe"
_RUN = """
const done = arguments[0];
axe.run(document, {resultTypes: ["violations"]}).then(
  (found) => done(found.violations.flatMap((each) =>
    each.nodes.map((node) => [each.id, node.html.slice(0, 200), node.failureSummary].join(" ")))),
  (error) => done([String(error)]));
"""


def axe_script() -> str:
    """The library's text; the first time it is brought from npm, as its lock file says."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    lock = _WANTED / "package-lock.json"
    with (_FOLDER / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        installed = _FOLDER / "node_modules" / ".package-lock.json"
        if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
            for file in _WANTED.iterdir():
                shutil.copy(file, _FOLDER)
            command = [
                "npm",
                "ci",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--loglevel=error",
            ]
            subprocess.run(command, cwd=_FOLDER, check=True)
    return (_FOLDER / "node_modules" / "axe-core" / "axe.min.js").read_text()


def obstacles(window: Chromium, script: str) -> list[Any]:
    """What axe-core objects to on the page that is open."""
    window.run(script)
    found: list[Any] = window.run_until_done(_RUN)
    return found
