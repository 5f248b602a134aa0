"""How a home's figures have moved, as lines of small bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from exporter.cli.render.blocks import Block, Cell, Column, Line, Table, Tone
from exporter.text import format_age, format_count, format_size

_BARS: Final = "▁▂▃▄▅▆▇█"
_ASCII_BARS: Final = "_.-=+*#"
WIDTH: Final = 32


def sparkline(values: Sequence[float], width: int = WIDTH, *, ascii_only: bool = False) -> str:
    """Return a bar for each value, from the smallest to the largest; equal values are all low.

    If there are more values than places, each place shows the largest of its values.
    """
    bars = _ASCII_BARS if ascii_only else _BARS
    if len(values) > width:
        edges = [round(place * len(values) / width) for place in range(width + 1)]
        values = [max(values[a:b]) for a, b in pairwise(edges)]
    least, most = min(values, default=0.0), max(values, default=0.0)
    step = (most - least) / (len(bars) - 1) if most > least else 0.0
    return "".join(bars[round((each - least) / step) if step else 0] for each in values)


def blocks(trends: Mapping[str, Any], now: float, *, ascii_only: bool = False) -> Iterator[Block]:
    """Yield a table for each home, of the value that `/api/v1/trends` shows; a home may lack the
    tokens.
    """
    several = len(trends["homes"]) > 1
    for home in trends["homes"]:
        if len(home["at"]) < 2:  # a single point shows no movement
            continue
        since = f"the last {format_age(now - home['at'][0])}"
        yield Line((Cell(f"{home['home']}, {since}" if several else since, Tone.FAINT),))
        columns = (Column(), Column(), Column(right=True), Column())
        yield Table(columns, tuple(_rows(home, ascii_only)), level=1)


def _rows(home: Mapping[str, Any], ascii_only: bool) -> Iterator[tuple[Cell, ...]]:
    in_all = [sum(each) for each in zip(*home["disk"].values(), strict=True)]
    shown: list[tuple[str, Sequence[float], Callable[[float], str]]] = [
        ("open", home["open"], _count),
        ("dead", home["dead"], _count),
        ("disk", in_all, lambda value: format_size(int(value))),
        ("tokens/h", _per_hour(home["at"], home.get("tokens", ())), _count),
    ]
    for name, values, write in shown:
        if values:
            change = values[-1] - values[0]
            sign = "+" if change > 0 else "-"
            moved = f"{sign}{write(abs(change))}" if change else ""
            line = sparkline(values, ascii_only=ascii_only)
            yield (
                Cell(f"{name:<8}", Tone.FAINT),
                Cell(line),
                Cell(write(values[-1]), Tone.STRONG),
                Cell(moved, Tone.FAINT),
            )


def _per_hour(at: Sequence[float], tokens: Sequence[float]) -> list[float]:
    """Return how fast a counter grew between two points; a fall is a new beginning."""
    points = list(zip(at, tokens, strict=False))
    return [
        max(0.0, after - before) * 3600 / (later - earlier)
        for (earlier, before), (later, after) in pairwise(points)
        if later > earlier
    ]


def _count(value: float) -> str:
    return format_count(round(value))
