"""Lines, axes and the table below them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exporter.text import format_size
from exporter.web.pages.charts import chart, home_charts

START = 1_799_971_200


def trend(points: int, step: int = 300, **lists: Any) -> dict[str, Any]:
    zeros = [0] * points
    made: dict[str, Any] = {
        "at": [START + number * step for number in range(points)],
        "open": zeros,
        "dead": zeros,
        "unknown": zeros,
        "tokens": zeros,
        "disk": {"logs": zeros},
    }
    return made | lists


def test_nothing_is_drawn_before_there_is_an_hour() -> None:
    assert home_charts(trend(1)) == []
    assert home_charts(trend(12)) == []
    assert len(home_charts(trend(14))) == 3


def test_a_line_is_not_drawn_across_a_gap() -> None:
    at = [START + hour * 3600 for hour in (0, 1, 2, 9, 10)]
    drawn = chart("t", at, {"a": [1.0] * 5}, str).lines[0]
    assert drawn.path.count("M") == drawn.area.count("M") == drawn.area.count("Z") == 2
    assert drawn.path.count("L") == 3


@pytest.mark.parametrize(
    ("value", "top"), [(0, "4"), (3, "4"), (180, "200"), (999, "1,000"), (1001, "2,000")]
)
def test_the_axis_ends_at_a_round_number(value: int, top: str) -> None:
    drawn = home_charts(trend(300, open=[value] * 300))[0]
    assert [tick.text for tick in drawn.up][-1] == top


def test_sizes_have_units_of_a_power_of_two() -> None:
    values = [3.0 * (1 << 30), 5.0 * (1 << 30)]
    drawn = chart("t", [START, START + 3600], {"a": values}, format_size)
    assert [tick.text for tick in drawn.up] == ["0 B", "2 GiB", "4 GiB", "6 GiB", "8 GiB"]


def test_large_counts_fit_beside_the_axis() -> None:
    tokens = [number * 25_000_000 for number in range(300)]
    drawn = home_charts(trend(300, tokens=tokens))[2]
    assert [tick.text for tick in drawn.up] == ["0", "100M", "200M", "300M", "400M"]


def test_stacked_lines_stand_on_each_other_and_tell_their_own_values() -> None:
    at = [START, START + 3600]
    lines = {"logs": [1.0, 2.0], "cache": [2.0, 6.0]}
    drawn = chart("t", at, lines, str, stacked=True)
    data = json.loads(drawn.data)
    logs, cache = data["lines"]
    assert drawn.up[-1].text == "8.0"
    assert cache["y"][1] == drawn.up[-1].at
    assert logs["y"][1] > cache["y"][1]
    assert cache["text"] == ["2.0", "6.0"]
    assert [line.style for line in drawn.lines] == ["kind-logs", "kind-cache"]
    assert [line.last for line in drawn.lines] == ["2.0", "6.0"]


def test_kinds_beyond_the_largest_are_one_line() -> None:
    kinds = {f"kind{number}": [number + 1] * 300 for number in range(9)}
    drawn = home_charts(trend(300) | {"disk": kinds})[1]
    assert [line.name for line in drawn.lines] == [
        *(f"kind{number}" for number in (8, 7, 6, 5, 4)),
        "all other kinds",
    ]
    assert drawn.days[0][1][-1] == "10 B"


def test_a_counter_that_began_anew_is_no_fall() -> None:
    tokens = [1000 * number for number in range(150)] + [0] * 150
    drawn = home_charts(trend(300, tokens=tokens))[2]
    assert drawn.days
    assert all(not value.startswith("-") for _, values in drawn.days for value in values)
