"""Lines over the last days as SVG: a value for each hour, axes, and the same values as a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from exporter.text import format_count, format_size

WIDTH: Final = 400
HEIGHT: Final = 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 6, 10, 24
_HOUR: Final = 3600
_DAY: Final = 86400
_GAP_SECONDS: Final = 2.5 * _HOUR
"""A line is not drawn across a longer time without a value."""
_LINES_MAX: Final = 6
_REST: Final = "all other kinds"
_TICKS: Final = 4
_LABELS_MAX: Final = 6
_MILLION: Final = 1_000_000

Values = Sequence[float]


class AxisTick(Struct, frozen=True):
    at: float
    text: str


class ChartLine(Struct, frozen=True):
    name: str
    style: str
    """The class that gives it its colour."""
    path: str
    area: str
    """What lies between this line and the one below it, or the axis."""
    last: str
    """The newest value."""


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
    stacked: bool
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def home_charts(trend: Mapping[str, Any]) -> list[Chart]:
    """Return the charts of one home of `/api/v1/trends`; none before there are two hours."""
    times: Sequence[int] = trend["at"]
    if len(times) < 2 or times[-1] - times[0] < _HOUR:
        return []
    hours = list(_last_of_hour(times))
    at = [times[number] for number in hours]

    def hourly(values: Values) -> list[float]:
        return [values[number] for number in hours]

    kinds = {kind: hourly(values) for kind, values in trend["disk"].items()}
    sessions = {name: hourly(trend[name]) for name in ("open", "dead")}
    tokens = {"tokens": _per_hour(at, hourly(trend["tokens"]))}
    return [
        chart("Sessions", at, sessions, _format_whole),
        chart("Bytes by kind", at, _largest(kinds), format_size, stacked=True),
        chart("Tokens per hour", at[1:], tokens, _format_whole),
    ]


class _Band(NamedTuple):
    """A line, and what it stands on."""

    values: Values
    lower: Values
    upper: Values


class _Frame(NamedTuple):
    """Turns times and values into places of the drawing."""

    first: int
    last: int
    top: float

    def x(self, moment: float) -> float:
        part = (moment - self.first) / (self.last - self.first)
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * part, 1)

    def y(self, value: float) -> float:
        return round(_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - value / self.top), 1)


def chart(
    title: str,
    at: Sequence[int],
    lines: Mapping[str, Values],
    form: Callable[[float], str],
    *,
    stacked: bool = False,
) -> Chart:
    """Draw lines over their common time; `stacked` ones stand on each other."""
    bands = _bands(lines, len(at), stacked=stacked)
    highest = max((max(each.upper, default=0.0) for each in bands.values()), default=0.0)
    first = at[0] if at else 0
    frame = _Frame(
        first, max(at[-1] if at else 0, first + 1), _round_up(highest, size=form is format_size)
    )
    steps = [frame.top * part / _TICKS for part in range(_TICKS + 1)]
    return Chart(
        title,
        tuple(_line(name, at, band, frame, form) for name, band in bands.items()),
        tuple(AxisTick(frame.x(moment), text) for moment, text in _days(frame.first, frame.last)),
        tuple(AxisTick(frame.y(step), _on_axis(step, form)) for step in steps),
        _encoded(at, bands, frame, form),
        _table(at, lines, form),
        stacked,
    )


def _bands(lines: Mapping[str, Values], points: int, *, stacked: bool) -> dict[str, _Band]:
    floor: Values = [0.0] * points
    bands: dict[str, _Band] = {}
    for name, values in lines.items():
        upper = [low + value for low, value in zip(floor, values, strict=True)]
        bands[name] = _Band(values, floor, upper)
        if stacked:
            floor = upper
    return bands


def _line(
    name: str, at: Sequence[int], band: _Band, frame: _Frame, form: Callable[[float], str]
) -> ChartLine:
    upper, lower = (
        [f"{frame.x(moment)} {frame.y(value)}" for moment, value in zip(at, values, strict=True)]
        for values in (band.upper, band.lower)
    )
    path = area = ""
    for part in _without_gaps(at):
        path += f"M{'L'.join(upper[part])}"
        area += f"M{'L'.join(upper[part])}L{'L'.join(reversed(lower[part]))}Z"
    return ChartLine(name, _style(name), path, area, form(band.values[-1]) if at else "?")


def _encoded(
    at: Sequence[int], bands: Mapping[str, _Band], frame: _Frame, form: Callable[[float], str]
) -> str:
    """Return the places and texts of all values, as `page.js` reads them."""
    rows = [
        {
            "y": [frame.y(value) for value in band.upper],
            "text": [form(value) for value in band.values],
        }
        for band in bands.values()
    ]
    places = [frame.x(moment) for moment in at]
    return msgspec.json.encode({"at": at, "x": places, "lines": rows}).decode()


def _style(name: str) -> str:
    if name in ("open", "tokens"):
        return name
    if name == "dead":
        return "verdict-dead"
    return "kind-rest" if name == _REST else f"kind-{name}"


def _format_whole(value: float) -> str:
    return format_count(round(value))


def _on_axis(value: float, form: Callable[[float], str]) -> str:
    """Return `4 MiB`, `40,000`, `120M`: an axis has room for nine characters."""
    if form is _format_whole and value >= _MILLION:
        return f"{value / _MILLION:,.4g}M"
    return form(value).replace(".0 ", " ")


def _last_of_hour(times: Sequence[int]) -> Iterator[int]:
    """Yield the places of the last point of each hour."""
    for number, (at, following) in enumerate(pairwise(times)):
        if at // _HOUR != following // _HOUR:
            yield number
    yield len(times) - 1


def _per_hour(at: Sequence[int], values: Values) -> list[float]:
    """Return the rise of a counter as a rate; a fall (a new state directory) counts as no rise."""
    return [
        max(0.0, value - before) * _HOUR / (moment - earlier)
        for (earlier, moment), (before, value) in zip(pairwise(at), pairwise(values), strict=True)
    ]


def _largest(kinds: Mapping[str, Values]) -> dict[str, Values]:
    """Return the largest kinds, and the sum of the others: more lines would look alike."""
    present = {kind: values for kind, values in kinds.items() if any(values)}
    order = sorted(present, key=lambda kind: -max(present[kind]))
    if len(order) <= _LINES_MAX:
        return {kind: present[kind] for kind in order}
    shown: dict[str, Values] = {kind: present[kind] for kind in order[: _LINES_MAX - 1]}
    others = (present[kind] for kind in order[_LINES_MAX - 1 :])
    shown[_REST] = [sum(same) for same in zip(*others, strict=True)]
    return shown


def _without_gaps(at: Sequence[int]) -> Iterator[slice]:
    """Yield the parts of the time in which there is a value at least every few hours."""
    begin = 0
    for number, (earlier, moment) in enumerate(pairwise(at), 1):
        if moment - earlier > _GAP_SECONDS:
            yield slice(begin, number)
            begin = number
    if at:
        yield slice(begin, len(at))


def _round_up(value: float, *, size: bool) -> float:
    """Return a limit of the axis that divides into round steps."""
    if value <= 0:
        return float(_TICKS)
    base, unit = (1024.0, 1.0) if size else (10.0, 1.0)
    while unit * base <= value:
        unit *= base
    steps = (
        (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 384, 512, 768, 1024)
        if size
        else (1, 2, 4, 6, 8, 10)
    )
    fitting = next(step for step in steps if step * unit >= value)
    return max(fitting * unit, 1.0 if size else float(_TICKS))


def _days(first: int, last: int) -> Iterator[tuple[int, str]]:
    """Yield some midnights between two times, or hours if there are less than two days."""
    unit = _DAY if last - first >= 2 * _DAY else _HOUR
    step = unit * max(1, -(-(last - first) // (unit * _LABELS_MAX)))
    offset = time.localtime(last).tm_gmtoff
    at = (first + offset + unit - 1) // unit * unit - offset
    while at <= last:
        yield at, time.strftime("%b %-d" if unit == _DAY else "%H:%M", time.localtime(at))
        at += step


def _table(
    at: Sequence[int], lines: Mapping[str, Values], form: Callable[[float], str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    last_of_day = {
        time.strftime("%Y-%m-%d", time.localtime(moment)): number
        for number, moment in enumerate(at)
    }
    return tuple(
        (day, tuple(form(values[number]) for values in lines.values()))
        for day, number in last_of_day.items()
    )
