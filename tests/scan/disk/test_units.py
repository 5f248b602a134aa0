"""Which parts of a home are read although nothing shows that they changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exporter.scan.disk.units import (
    LARGE_ENTRIES,
    ROUND_SCANS,
    DiskUnit,
    FolderUnit,
    ReadEffort,
    choose_units,
)
from exporter.scan.disk.walk import FolderTotals
from exporter.snapshot import DiskKind

SIZES = st.lists(st.integers(1, 5000), min_size=1, max_size=80)


def nodes_of(sizes: list[int]) -> list[DiskUnit]:
    nodes: list[DiskUnit] = []
    for number, size in enumerate(sizes):
        node = FolderUnit(b"%d" % number, DiskKind.OTHER)
        node.set_totals({DiskKind.OTHER: FolderTotals(files=size - 1, folders=1, newest=number)})
        nodes.append(node)
    return nodes


@given(SIZES, st.integers(0, 10**6))
def test_little_is_read_whole_every_time(sizes: list[int], exact: int) -> None:
    nodes = nodes_of(sizes)
    turn = choose_units(nodes, ReadEffort(exact_entries=exact, hot_entries=0), full=0)
    assert (turn.read == nodes) == (sum(sizes) <= exact)
    assert not (turn.read and turn.look)


@given(SIZES, st.integers(0, 3000))
def test_every_node_has_its_turn_within_a_round(sizes: list[int], hot: int) -> None:
    nodes = nodes_of(sizes)
    for scan in range(1, ROUND_SCANS + 1):
        turn = choose_units(nodes, ReadEffort(exact_entries=0, hot_entries=hot), full=0)
        for node in turn.look:
            node.checked = scan
    assert all(node.checked for node in nodes)


@given(SIZES)
def test_a_turn_costs_little(sizes: list[int]) -> None:
    """At most the share of one scan and the node at which it ends, however large that is."""
    look = choose_units(nodes_of(sizes), ReadEffort(exact_entries=0, hot_entries=0), full=0).look
    assert sum(min(node.entries, LARGE_ENTRIES) for node in look) <= (
        sum(sizes) / ROUND_SCANS + LARGE_ENTRIES
    )


def test_what_was_written_last_is_looked_at_every_time() -> None:
    nodes = nodes_of([100] * 200)
    nodes[70].newest = 10**9
    for _ in range(3):
        turn = choose_units(nodes, ReadEffort(exact_entries=0, hot_entries=1), full=0)
        assert nodes[70] in turn.look


def test_those_longest_not_read_are_read() -> None:
    nodes = nodes_of([100] * 200)
    for number, node in enumerate(nodes):
        node.read_at = float(-number)
    turn = choose_units(nodes, ReadEffort(exact_entries=0, hot_entries=500), full=3)
    assert turn.read == nodes[:-4:-1]
    assert not set(turn.read) & set(turn.look)
