"""Schemathesis, which asks an API what its OpenAPI file allows and forbids, and judges the answers.

It has an environment of its own under .cache: some 90 MB that only the tests at full size need.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

from tests.real.hermes import REPOSITORY

_VERSION = "4.32.5"
_FOLDER = REPOSITORY / ".cache" / "schemathesis"


def schemathesis(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it to its end; what it notes goes to the folder."""
    return subprocess.run(
        [_program(), *words], cwd=folder, capture_output=True, text=True, timeout=1800
    )


def _program() -> Path:
    _FOLDER.mkdir(parents=True, exist_ok=True)
    stamp = _FOLDER / ".installed"
    with (_FOLDER / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != _VERSION:
            venv = str(_FOLDER / "venv")
            subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
            pip = [f"{venv}/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "install", f"schemathesis=={_VERSION}"], check=True)
            stamp.write_text(_VERSION)
    return _FOLDER / "venv/bin/schemathesis"
