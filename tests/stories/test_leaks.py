"""Every leak ends: beside each neighbour it is proven or presumed dead, after the table's time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.real.stub_model import StubModel, stub_model
from tests.support.leaks import (
    BEGIN,
    CHAT_SECONDS,
    DELEGATING,
    END,
    GATEWAY,
    LEAKS,
    NEIGHBOURS,
    NOBODY,
    OLDER_CHAT,
    SERVER_SECONDS,
    SUBAGENT,
    Cell,
    measure,
)


@pytest.fixture
def model() -> Iterator[StubModel]:
    with stub_model() as stub:
        yield stub


def check(found: dict[tuple[str, str], Cell]) -> None:
    for (leak, kind), cell in found.items():
        expected = "proven" if kind in (NOBODY, OLDER_CHAT) else "presumed"
        assert cell.verdict == expected, (leak, kind, cell)
        if cell.verdict == "presumed":
            needed = SERVER_SECONDS if kind == GATEWAY else CHAT_SECONDS
            assert cell.seconds > needed, (leak, kind, cell)


def test_the_parent_of_a_killed_task_ends_beside_no_process_and_beside_a_gateway(
    tmp_path: Path, model: StubModel
) -> None:
    """The answer that it waits for is never delivered, and holds it no more."""
    neighbours = (NOBODY, GATEWAY)
    found = measure(python_for(NEWEST), tmp_path, model, (DELEGATING,), neighbours)
    assert len(found) == 2
    check(found)


@pytest.mark.parametrize("version", ["0.13.0", "0.16.0"])
def test_a_subagent_of_a_killed_gateway_ends_although_its_row_has_the_source_of_the_gateway(
    version: str, tmp_path: Path, model: StubModel
) -> None:
    found = measure(python_for(version), tmp_path, model, (SUBAGENT,), (NOBODY,))
    check(found)


@pytest.mark.full
@pytest.mark.parametrize("version", ["0.13.0", "0.16.0", NEWEST])
def test_every_leak_ends_beside_every_neighbour(
    version: str, tmp_path: Path, model: StubModel
) -> None:
    found = measure(python_for(version), tmp_path, model)
    assert len(found) == len(LEAKS) * len(NEIGHBOURS)
    check(found)


def test_the_page_says_how_every_leak_ends() -> None:
    """`python -m tests.support.leaks` writes the table from what it measured."""
    page = (REPOSITORY / "docs" / "safety.md").read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(LEAKS)
    cells = [cell for row in rows for cell in row.strip("| ").split(" | ")[1:]]
    assert len(cells) == len(LEAKS) * len(NEIGHBOURS)
    assert set(cells) == {"proven", "presumed"}
