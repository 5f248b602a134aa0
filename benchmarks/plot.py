"""A plot of growth with the size of a home, as SVG: both axes are logarithmic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10

Point = tuple[float, float]

_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 200, 40, 40
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.grid{stroke:#ccc}.frame{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#555}.frame{fill:#1a1a1a}}"
)


def growth_plot(title: str, unit: str, curves: Mapping[str, Sequence[Point]]) -> str:
    """Return a plot of values by scale; a curve has at least one point."""
    points = [point for curve in curves.values() for point in curve]
    across = _Axis([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _Axis([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="frame" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text x="{_LEFT}" y="20">{escape(title)} ({escape(unit)})</text>',
    ]
    for value in across.marks:
        x = across.place(value)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text x="{x}" y="{_HEIGHT - 22}" text-anchor="middle">{value:g}</text>')
    parts.append(
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">size of the home; 1 has 10,000 sessions</text>'
    )
    for value in up.marks:
        y = up.place(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{value:g}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [(across.place(x), up.place(y)) for x, y in sorted(curve)]
        path = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]
        row = _TOP + 18 * number
        edge = _WIDTH - _RIGHT + 12
        parts.append(f'<rect x="{edge}" y="{row - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{edge + 16}" y="{row}">{escape(name)}</text>')
    return "\n".join((*parts, "</svg>", ""))


class _Axis:
    """One axis over whole powers of ten."""

    def __init__(self, values: Sequence[float], start: int, end: int) -> None:
        low = floor(log10(min(values)))
        high = max(ceil(log10(max(values))), low + 1)
        self.marks = [10.0**power for power in range(low, high + 1)]
        self._low, self._span = low, high - low
        self._start, self._length = start, end - start

    def place(self, value: float) -> int:
        return round(self._start + (log10(value) - self._low) / self._span * self._length)
