"""Sparklines: one bar a value, the largest of several, and what changed."""

from __future__ import annotations

from exporter.cli.render import plain_text
from exporter.cli.render.sparkline import blocks, sparkline


def test_bars_go_from_the_smallest_to_the_largest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([5, 5, 5]) == "▁▁▁"
    assert sparkline([]) == ""
    assert sparkline([3, 9], ascii_only=True) == "_#"


def test_more_values_than_places_show_the_largest_of_each_place() -> None:
    assert sparkline([0, 0, 0, 7, 0, 0, 0, 0], width=4) == "▁█▁▁"
    assert len(sparkline(list(range(1000)), width=32)) == 32


def test_a_home_shows_its_figures_and_how_they_moved() -> None:
    home = {
        "home": "default",
        "at": [0.0, 1800.0, 3600.0],
        "open": [10, 12, 14],
        "dead": [0, 0, 0],
        "tokens": [0.0, 500.0, 100.0],
        "disk": {"state_db": [2048, 1024, 1024], "logs": [0, 0, 0]},
    }
    once = {**home, "home": "new", "at": [1.0]}
    text = plain_text.render(blocks({"homes": [home, once]}, 7200.0))
    lines = [line.split() for line in text.splitlines()]
    assert lines[0] == ["default,", "the", "last", "2h"]
    assert lines[1] == ["open", "▁▅█", "14", "+4"]
    assert lines[2] == ["dead", "▁▁▁", "0"]
    assert lines[3] == ["disk", "█▁▁", "1.0", "KiB", "-1.0", "KiB"]
    assert lines[4] == ["tokens/h", "█▁", "0", "-1,000"]  # a counter that fell begins anew
    assert len(lines) == 5  # a single point shows no movement
