"""The versions that image and package are made with are those the project asks for."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.real.hermes import REPOSITORY

LOCKED = (REPOSITORY / "deploy/requirements.txt").read_text()


def test_every_dependency_is_locked_at_a_version_that_fits() -> None:
    """`make lock` mends it."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)", LOCKED, re.MULTILINE))
    for text in project["dependencies"]:
        wanted = Requirement(text)
        locked = versions.get(canonicalize_name(wanted.name))
        assert locked is not None, f"{wanted.name} is not in deploy/requirements.txt: make lock"
        assert wanted.specifier.contains(locked), f"{text}, but {locked} is locked: make lock"


def test_every_locked_version_has_its_hashes() -> None:
    entries = re.split(r"\n(?=\w)", LOCKED.strip())
    assert entries
    assert [each for each in entries if "--hash=sha256:" not in each] == []
