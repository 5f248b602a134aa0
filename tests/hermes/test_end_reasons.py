"""The reasons that Hermes writes are those in the code of every release."""

from __future__ import annotations

import re

import pytest

from exporter.hermes.end_reasons import WRITTEN_BY_HERMES
from tests.real.hermes import VERSIONS, python_for

_SET = re.compile(r"""(?:end_reason\s*=\s*|\.end_session\([^()]*,\s*)["']([a-z_]+)["']""", re.ASCII)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_reason_of_a_release_is_known(version: str) -> None:
    folder = python_for(version).folder
    code = [path for path in folder.rglob("*.py") if "tests" not in path.parts]
    found = {reason for path in code for reason in _SET.findall(path.read_text(errors="replace"))}
    assert {"cli_close", "compression", "new_session"} <= found <= WRITTEN_BY_HERMES
