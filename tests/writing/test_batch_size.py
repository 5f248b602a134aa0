"""The size of a batch follows what the last transactions took, within its limits."""

from __future__ import annotations

import pytest

from exporter.writing.batch_size import BatchSize

BUDGET = 0.05


def ends(**changes: float) -> BatchSize:
    """As for ends of sessions: many small rows, each batch judged by the one before."""
    limits = {"first_seconds": 0.0004, "share": 0.25, "least": 1, "most": 1_000, "growth": 8}
    return BatchSize(BUDGET, remembered=1, **{**limits, **changes})  # type: ignore[arg-type]


def test_the_first_batch_goes_by_the_estimate() -> None:
    assert ends().size == 31
    assert BatchSize(BUDGET).size == 60


def test_a_fast_batch_lets_the_next_grow_but_not_at_once() -> None:
    size = ends()
    size.record(31, 0.0001)
    assert size.size == 8 * 31 + 2
    size.record(250, 0.0001)
    assert size.size == 1_000, "and never beyond the most"


def test_a_slow_batch_shrinks_the_next_to_what_fits() -> None:
    size = ends()
    size.record(31, 0.031)
    assert size.size == 12
    size.record(12, 1.2)
    assert (size.size, size.is_least) == (1, True)


def test_one_slow_transaction_among_fast_ones_says_nothing() -> None:
    size = BatchSize(BUDGET)
    for _ in range(5):
        size.record(60, 0.03)
    before = size.size
    size.record(60, 3.0)
    assert size.size == before


def test_after_a_rollback_at_most_half_is_tried() -> None:
    size = BatchSize(BUDGET)
    size.record_too_long(60, 0.0)
    assert size.size == 30
    size.record_too_long(30, 0.25)
    assert size.size == 8, "and never less than the least"


def test_the_least_is_tried_when_asked_for_and_then_it_grows_again() -> None:
    size = ends()
    size.use_least()
    assert size.is_least
    size.record(1, 0.0)
    assert size.size == 8


def test_nothing_is_learnt_from_a_transaction_without_work() -> None:
    size = BatchSize(BUDGET)
    size.record(0, 1.0)
    assert size.size == 60


@pytest.mark.parametrize(
    ("works", "count"),
    [([], 1), ([1_000], 1), ([19, 19, 19], 3), ([19, 19, 20], 2), ([0] * 99, 60)],
)
def test_as_many_go_together_as_fit_and_at_least_one(works: list[int], count: int) -> None:
    assert BatchSize(BUDGET).fitting(works) == count
