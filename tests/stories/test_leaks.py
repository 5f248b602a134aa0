"""Every leak ends: beside each neighbour it is proven or presumed dead, after the table's time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.hermes import NEWEST, python_for
from tests.real.stub_model import StubModel, stub_model
from tests.support.leaks import (
    CHAT_SECONDS,
    DELEGATING,
    GATEWAY,
    LEAKS,
    NEIGHBOURS,
    NOBODY,
    OLDER_CHAT,
    ONE_SHOT,
    SERVER_SECONDS,
    SUBAGENT,
    Cell,
    measure,
)


@pytest.fixture
def model() -> Iterator[StubModel]:
    with stub_model() as stub:
        yield stub


def expected(leak: str, kind: str, version: str) -> str:
    if leak == SUBAGENT and version < "0.17":
        return "exempt"  # its row has the source of its parent, a client of the API
    return "proven" if kind in (NOBODY, OLDER_CHAT) else "presumed"


def check(found: dict[tuple[str, str], Cell], version: str) -> None:
    for (leak, kind), cell in found.items():
        assert cell.verdict == expected(leak, kind, version), (leak, kind, cell)
        if cell.verdict == "presumed":
            needed = SERVER_SECONDS if kind == GATEWAY else CHAT_SECONDS
            assert cell.seconds > needed, (leak, kind, cell)


def test_leaks_end_beside_no_process_and_beside_a_gateway(tmp_path: Path, model: StubModel) -> None:
    """Also the parent of a task that was killed with it, whose answer is never delivered."""
    leaks, neighbours = (ONE_SHOT, DELEGATING), (NOBODY, GATEWAY)
    found = measure(python_for(NEWEST), tmp_path, model, leaks, neighbours)
    assert len(found) == 4
    check(found, NEWEST)


@pytest.mark.full
@pytest.mark.parametrize("version", ["0.13.0", "0.16.0", NEWEST])
def test_every_leak_ends_beside_every_neighbour(
    version: str, tmp_path: Path, model: StubModel
) -> None:
    found = measure(python_for(version), tmp_path, model)
    assert len(found) == len(LEAKS) * len(NEIGHBOURS)
    check(found, version)
