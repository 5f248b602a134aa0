"""What a worker keeps for the next command is used only for the home and database it is of."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from exporter.hermes.payload_sizes import MeasuredSizes
from exporter.pruner.gather.inventory_reader import Measurements
from exporter.scan.disk.repository import KeptRepo, KeptRepos, RepoReading
from exporter.scan.disk.walk import FolderTotals
from exporter.workers import kept_readings

HOME, DATABASE = "/home/ada/.hermes\udcff", (1, 2)
MEASURED = Measurements(
    MeasuredSizes(array("q", (7, 8)).tobytes(), 3, 40_000), {"project": (5.0, 6)}
)


def repos(count: int = 1) -> KeptRepos:
    reading = RepoReading((1, 2), True, FolderTotals(8, 1), FolderTotals(), 9, b"/w\xff", True)
    return KeptRepos((3, 4), 5.0, [KeptRepo(b"%d" % n, 6.0, reading) for n in range(count)])


def kept() -> bytes:
    data = kept_readings.dump(HOME, DATABASE, repos(), MEASURED)
    assert data is not None
    return data


def test_the_next_worker_of_the_same_home_gets_everything() -> None:
    found = kept_readings.load(kept(), HOME, DATABASE)
    assert found is not None
    assert (found.repos, found.measured) == (repos(), MEASURED)


def test_sizes_of_sessions_of_another_database_are_left_out() -> None:
    found = kept_readings.load(kept(), HOME, (1, 3))
    assert found is not None
    assert found.measured == Measurements(MeasuredSizes(b"", 0, 0), {"project": (5.0, 6)})
    assert found.repos == repos()


def test_readings_of_another_home_are_ignored() -> None:
    assert kept_readings.load(kept(), "/home/ada/.hermes", DATABASE) is None


def test_readings_of_another_format_are_ignored() -> None:
    fields = msgspec.msgpack.decode(kept())
    assert kept_readings.load(msgspec.msgpack.encode([99, *fields[1:]]), HOME, DATABASE) is None


@pytest.mark.parametrize("position", range(0, 90, 3))
def test_damaged_readings_never_raise(position: int) -> None:
    data = kept()
    assert kept_readings.load(data[:position], HOME, DATABASE) is None
    for wrong in (0x00, 0x93, 0xC1, 0xFF):
        changed = data[:position] + bytes([wrong]) + data[position + 1 :]
        kept_readings.load(changed, HOME, DATABASE)


def test_of_a_very_large_home_a_part_is_kept() -> None:
    many = Measurements(MeasuredSizes(bytes(16 * 1_000_000), 3, 4), {})
    data = kept_readings.dump(HOME, DATABASE, repos(50_000), many)
    assert data is not None
    assert len(data) <= kept_readings.BYTES_MAX
    found = kept_readings.load(data, HOME, DATABASE)
    assert found is not None
    assert len(found.repos.repos) == 12_000
    assert found.measured.payloads.measured_up_to == 0


def test_of_a_small_home_nothing_is_kept() -> None:
    few = Measurements(MeasuredSizes(b"", 0, 5_000), {"project": (5.0, 6)})
    assert kept_readings.dump(HOME, DATABASE, repos(10), few) is None
    assert kept_readings.dump(HOME, DATABASE, repos(1_000), few) is not None
