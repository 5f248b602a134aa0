"""What a view says of a home that was scanned, is being scanned, or cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.collectors.labels import AllowedValues
from exporter.collectors.view import HomeView
from exporter.reaper.slow_start import HourlyLimit
from exporter.runs.summary import RunSummary
from exporter.snapshot import Trouble

NONE = AllowedValues(frozenset())


def home(trouble: Trouble, scanned_at: float | None) -> HomeView:
    """A home of which nothing was read."""
    unread: dict[str, Any] = dict.fromkeys(
        ("probe", "snapshot", "evidence", "kanban_dead_owner", "prune")
    )
    empty: dict[str, Any] = dict.fromkeys(("blind", "counters", "verdicts", "leaks", "unknown"), ())
    return HomeView(
        label="default",
        path="/root/.hermes",
        up=trouble is Trouble.NONE,
        trouble=trouble,
        detail="",
        sources=NONE,
        histogram_sources=NONE,
        ended=NONE,
        end_reasons=NONE,
        scanned_at=scanned_at,
        scan_seconds=0.0,
        runs=RunSummary(),
        hourly_limit=HourlyLimit(10, 10),
        sessions_left_out=0,
        reaper_enforcing=False,
        prune_enforcing=False,
        **unread,
        **empty,
    )


@pytest.mark.parametrize(
    ("trouble", "scanned_at", "known"),
    [
        (Trouble.NONE, None, False),
        (Trouble.NONE, 5.0, True),
        (Trouble.PERMISSION, None, True),
        (Trouble.PERMISSION, 5.0, True),
    ],
)
def test_a_home_is_known_once_it_was_scanned_or_found_unreadable(
    trouble: Trouble, scanned_at: float | None, known: bool
) -> None:
    assert home(trouble, scanned_at).known is known


def test_of_a_home_that_cannot_be_read_no_files_are_counted() -> None:
    assert home(Trouble.PERMISSION, None).matched_files("logs/*") is None
