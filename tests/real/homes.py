"""Homes made by a real release."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real.hermes import Hermes, python_for


@dataclass(frozen=True)
class MadeHome:
    """A home with something of everything, and what its maker knows of it."""

    hermes: Hermes
    path: Path
    sessions: dict[str, str]
    """Session ids by the part they play; see `inside/make_sessions.py`."""
    facts: dict[str, Any]


def make_home(version: str, folder: Path, name: str = "home") -> MadeHome:
    """Make a home below `folder` through the real classes of `version`; no process has it open."""
    hermes = python_for(version)
    path = folder / name
    facts = hermes.run(
        "make_home", path, projects=str(folder / f"{name}-projects"), live_pid=os.getpid()
    )
    return MadeHome(hermes, path, facts["sessions"], facts)
