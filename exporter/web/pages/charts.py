"""Lines over the last days as SVG: a value for each hour, axes, and the same values as a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec import Struct

from exporter.text import format_count, format_size

WIDTH: Final = 640
HEIGHT: Final = 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 10, 24
_HOUR: Final = 3600
_DAY: Final = 86400
_GAP_SECONDS: Final = 2.5 * _HOUR
"""A line is not drawn across a longer time without a value."""
_LINES_MAX: Final = 6
_TICKS: Final = 4

Points = Sequence[tuple[int, float]]


class AxisTick(Struct, frozen=True):
    at: float
    text: str


class ChartLine(Struct, frozen=True):
    name: str
    number: int
    """Chooses the colour."""
    path: str


class Chart(Struct, frozen=True):
    """A drawing that a template only has to write down."""

    title: str
    lines: tuple[ChartLine, ...]
    across: tuple[AxisTick, ...]
    up: tuple[AxisTick, ...]
    data: str
    """The values for the script that shows them on hover and focus: JSON."""
    days: tuple[tuple[str, tuple[str, ...]], ...]
    """The last value of each day and each line, as text."""
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    bottom: int = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def home_charts(trend: Mapping[str, Any]) -> list[Chart]:
    """Return the charts of one home of `/api/v1/trends`; none before there are two hours."""
    times: Sequence[int] = trend["at"]
    if len(times) < 2 or times[-1] - times[0] < _HOUR:
        return []

    def hourly(values: Sequence[float]) -> list[tuple[int, float]]:
        return list(_last_of_hour(zip(times, values, strict=True)))

    sessions = {"open": hourly(trend["open"]), "dead": hourly(trend["dead"])}
    kinds = {kind: hourly(values) for kind, values in trend["disk"].items()}
    tokens = {"tokens": _per_hour(hourly(trend["tokens"]))}
    return [
        chart("Sessions", sessions, _format_whole),
        chart("Bytes by kind", _largest(kinds), format_size),
        chart("Tokens per hour", tokens, _format_whole),
    ]


def chart(title: str, lines: Mapping[str, Points], form: Callable[[float], str]) -> Chart:
    """Draw lines over their common time."""
    every = [point for points in lines.values() for point in points]
    first = min((at for at, _ in every), default=0)
    last = max(max((at for at, _ in every), default=0), first + 1)
    top = _round_up(max((value for _, value in every), default=0.0), size=form is format_size)
    across, up = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def x(at: float) -> float:
        return round(_LEFT + across * (at - first) / (last - first), 1)

    def y(value: float) -> float:
        return round(_TOP + up * (1 - value / top), 1)

    return Chart(
        title,
        tuple(
            ChartLine(name, number, _path([(at, x(at), y(value)) for at, value in points]))
            for number, (name, points) in enumerate(lines.items())
        ),
        tuple(AxisTick(x(at), text) for at, text in _days(first, last)),
        tuple(
            AxisTick(y(top * part / _TICKS), form(top * part / _TICKS))
            for part in range(_TICKS + 1)
        ),
        msgspec.json.encode(
            [
                {"name": name, "points": [[at, x(at), y(v), form(v)] for at, v in points]}
                for name, points in lines.items()
            ]
        ).decode(),
        _table(lines, form),
    )


def _format_whole(value: float) -> str:
    return format_count(round(value))


def _last_of_hour(points: Iterator[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    last: tuple[int, float] | None = None
    for point in points:
        if last is not None and point[0] // _HOUR != last[0] // _HOUR:
            yield last
        last = point
    if last is not None:
        yield last


def _per_hour(points: Points) -> list[tuple[int, float]]:
    """Return the rise of a counter as a rate; a fall (a new state directory) counts as no rise."""
    return [
        (at, max(0.0, value - before) * _HOUR / (at - earlier))
        for (earlier, before), (at, value) in pairwise(points)
    ]


def _largest(kinds: Mapping[str, Points]) -> dict[str, Points]:
    """Return the largest kinds, and the sum of the others: more lines cannot be told apart."""
    present = {kind: points for kind, points in kinds.items() if any(v for _, v in points)}
    order = sorted(present, key=lambda kind: -max(value for _, value in present[kind]))
    if len(order) <= _LINES_MAX:
        return {kind: present[kind] for kind in order}
    shown: dict[str, Points] = {kind: present[kind] for kind in order[: _LINES_MAX - 1]}
    rest = zip(*(present[kind] for kind in order[_LINES_MAX - 1 :]), strict=True)
    shown["all other kinds"] = [(same[0][0], sum(v for _, v in same)) for same in rest]
    return shown


def _path(points: Sequence[tuple[int, float, float]]) -> str:
    parts: list[str] = []
    last = None
    for at, x, y in points:
        parts.append(f"{'L' if last is not None and at - last <= _GAP_SECONDS else 'M'}{x} {y}")
        last = at
    return "".join(parts)


def _round_up(value: float, *, size: bool) -> float:
    """Return a limit of the axis that divides into round steps."""
    if value <= 0:
        return float(_TICKS)
    base, unit = (1024.0, 1.0) if size else (10.0, 1.0)
    while unit * base <= value:
        unit *= base
    steps = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if size else (1, 2, 4, 6, 8, 10)
    fitting = next(step for step in steps if step * unit >= value)
    return max(fitting * unit, 1.0 if size else float(_TICKS))


def _days(first: int, last: int) -> Iterator[tuple[int, str]]:
    """Yield the midnights between two times, or hours if there are less than two days."""
    step = _DAY if last - first >= 2 * _DAY else max(_HOUR, (last - first) // 6 // _HOUR * _HOUR)
    offset = time.localtime(last).tm_gmtoff
    at = (first + offset + step - 1) // step * step - offset
    while at <= last:
        yield at, time.strftime("%b %d" if step == _DAY else "%H:%M", time.localtime(at))
        at += step * (1 if (last - first) / step <= 8 else 2)


def _table(
    lines: Mapping[str, Points], form: Callable[[float], str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    by_day: dict[str, dict[str, str]] = {}
    for name, points in lines.items():
        for at, value in points:
            by_day.setdefault(time.strftime("%Y-%m-%d", time.localtime(at)), {})[name] = form(value)
    return tuple(
        (day, tuple(values.get(name, "") for name in lines)) for day, values in by_day.items()
    )
