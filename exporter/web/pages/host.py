"""The page at `/`: what a tired engineer has to know about this host, in five seconds."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

from exporter.web.pages.charts import home_charts
from exporter.web.pages.environment import page
from exporter.web.response import Response

VERDICTS: Final = ("dead", "unknown", "held", "live", "exempt")
"""In the order of what needs a person first."""
_BAR: Final = 600.0
_DETAILED_MAX: Final = 12
"""Homes that are shown with details and charts; the table lists all."""
_RUNS_MAX: Final = 5
_DAY: Final = 86400
_RATIOS: Final = ("disk_used",)
_COUNTS: Final = ("empty_sessions",)


def host_page(
    status: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    trends: Mapping[str, Any] | None,
    telemetry_path: str,
    only: str | None = None,
) -> Response:
    """Return the page; `trends` is None if they could not be read, `only` names one home."""
    by_home = {each["home"]: each for each in trends["homes"]} if trends is not None else {}
    homes = [each for each in status["homes"] if only in (None, each["home"])]
    homes.sort(key=_urgency)
    return page(
        "host.html",
        status=200 if homes or only is None else 404,
        host=socket.gethostname(),
        agent=status["agent"],
        refused=status["refused"],
        telemetry_path=telemetry_path,
        homes=homes,
        only=only,
        details=[_home(each, runs, by_home.get(each["home"])) for each in homes[:_DETAILED_MAX]],
        trends_known=trends is not None,
    )


def _urgency(home: Mapping[str, Any]) -> tuple[bool, bool, int, str]:
    pressed = any(each["pressure"] for each in home["thresholds"])
    return home["up"], not pressed, -(home["verdicts"]["dead"] or 0), home["home"]


def _home(
    home: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], trend: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        **home,
        "verdict_bar": _bar([(name, home["verdicts"][name] or 0) for name in VERDICTS]),
        "disk_total": sum(home["disk"].values()),
        "disk_bar": _bar(sorted(home["disk"].items(), key=lambda kind: -kind[1])),
        "meters": [_meter(each) for each in home["thresholds"] if each["value"] is not None],
        "runs": [each for each in runs if each["home"] == home["home"]][:_RUNS_MAX],
        "dead_change": _change(trend),
        "charts": home_charts(trend) if trend is not None else [],
    }


def _bar(parts: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return the parts that are not 0 as pieces of a bar, each with its place."""
    total = sum(size for _, size in parts) or 1
    pieces, x = [], 0.0
    for number, (name, size) in enumerate(parts):
        if size:
            width = _BAR * size / total
            pieces.append(
                {
                    "name": name,
                    "number": min(number, 6),
                    "size": size,
                    "x": round(x, 1),
                    "width": round(max(width, 1.0), 1),
                }
            )
            x += width
    return pieces


def _meter(threshold: Mapping[str, Any]) -> dict[str, Any]:
    """Return a threshold as a bar that ends a little above its high watermark."""
    whole = (
        1.0 if threshold["name"] in _RATIOS else max(threshold["high"], threshold["value"]) * 1.1
    )

    def x(value: float) -> float:
        return round(_BAR * min(1.0, value / whole), 1)

    form = "percent" if threshold["name"] in _RATIOS else "size"
    return {
        **threshold,
        "form": "count" if threshold["name"] in _COUNTS else form,
        "width": x(threshold["value"]),
        "low_x": x(threshold["low"]),
        "high_x": x(threshold["high"]),
    }


def _change(trend: Mapping[str, Any] | None) -> dict[str, int] | None:
    """Return how the number of dead sessions changed within the last day, as far as it is known."""
    if trend is None or len(trend["at"]) < 2:
        return None
    since = trend["at"][-1] - _DAY
    first = next(number for number, at in enumerate(trend["at"]) if at >= since)
    seconds = trend["at"][-1] - trend["at"][first]
    if seconds < 3600:
        return None
    return {"dead": trend["dead"][-1] - trend["dead"][first], "seconds": seconds}
