"""Leases are read whole or not at all: an overlooked lease would leave its session unprotected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.hermes.leases import read_leases
from exporter.snapshot import Lease

ENTRY = {"session_id": "s1", "surface": "tui", "pid": 7, "process_start_time": 1700000000.5}
LEASE = Lease(session_id="s1", surface="tui", pid=7, process_started_at=1700000000.5)


def read(home: Path, document: Any) -> list[Lease] | None:
    (home / "runtime").mkdir(exist_ok=True)
    (home / "runtime" / "active_sessions.json").write_text(json.dumps(document))
    return read_leases(str(home))


def test_without_the_file_there_are_no_leases(tmp_path: Path) -> None:
    assert read_leases(str(tmp_path)) == []


def test_leases_are_read_in_both_forms_of_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, {"entries": [ENTRY]}) == [LEASE]
    assert read(tmp_path, [ENTRY]) == [LEASE]
    assert read(tmp_path, {"entries": []}) == []


@pytest.mark.parametrize("moment", [None, True, "1700000000", 0, -1.0, 1e11])
def test_a_start_that_is_no_plausible_time_is_unknown(tmp_path: Path, moment: object) -> None:
    found = read(tmp_path, [{**ENTRY, "process_start_time": moment}])
    assert found is not None
    assert [lease.process_started_at for lease in found] == [None]


@pytest.mark.parametrize(
    "entry",
    [
        "s1",
        {**ENTRY, "pid": True},
        {**ENTRY, "pid": "7"},
        {**ENTRY, "session_id": None},
        {"surface": "tui"},
    ],
)
def test_one_entry_that_is_not_understood_makes_the_file_unreadable(
    tmp_path: Path, entry: object
) -> None:
    assert read(tmp_path, {"entries": [ENTRY, entry]}) is None


def test_a_file_of_another_shape_is_unreadable(tmp_path: Path) -> None:
    assert read(tmp_path, {"leases": [ENTRY]}) is None
    assert read(tmp_path, "leases") is None
    assert read(tmp_path, [ENTRY] * 513) is None
    (tmp_path / "runtime" / "active_sessions.json").write_text("{")
    assert read_leases(str(tmp_path)) is None


def test_long_names_are_cut(tmp_path: Path) -> None:
    found = read(tmp_path, [{**ENTRY, "session_id": "s" * 600, "surface": "t" * 600}])
    assert found == [
        Lease(session_id="s" * 512, surface="t" * 64, pid=7, process_started_at=1700000000.5)
    ]
