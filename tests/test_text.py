"""Numbers as people read them."""

from __future__ import annotations

import pytest

from exporter.text import counted, format_age, format_count, format_percent, format_size


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1.5 * 2**30, "1.5 GiB"),
        (2**30 - 1, "1.0 GiB"),
        (3 * 2**40, "3.0 TiB"),
        (5000 * 2**50, "5000.0 PiB"),
    ],
)
def test_sizes(size_bytes: float, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "future"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3600, "1h"),
        (11100, "3h 5m"),
        (86400, "1d"),
        (100_000, "1d 3h"),
        (90 * 86400 + 7200, "90d"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert format_age(seconds) == text


def test_percentages_and_counts() -> None:
    assert format_percent(0.9) == "90%"
    assert format_percent(0.975) == "97.5%"
    assert format_count(12000) == "12,000"
    assert [counted(number, "home") for number in (0, 1, 2)] == [
        "0 homes",
        "1 home",
        "2 homes",
    ]
