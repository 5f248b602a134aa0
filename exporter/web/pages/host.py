"""The page at `/`: what an engineer has to know about this host, at first sight."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

from exporter.web.pages.charts import home_charts
from exporter.web.pages.environment import page
from exporter.web.response import Response

VERDICTS: Final = ("dead", "unknown", "held", "live", "exempt")
"""In the order of what needs a person first."""
CAUSES: Final = ("mid_turn", "after_turn", "empty")
_BAR: Final = 600.0
_DETAILED_MAX: Final = 12
"""Homes that are shown with details and charts; the table lists all."""
_RUNS_MAX: Final = 5
_HOUR: Final = 3600
_DAY: Final = 86400
_RATIOS: Final = ("disk_used",)
_COUNTS: Final = ("empty_sessions",)
_KINDS: Final = {
    "transcripts": ("transcripts", "request_dumps"),
    "checkpoints": ("checkpoints_legacy", "checkpoints_store", "checkpoints_archive"),
    "state_db_payload": ("state_db",),
}
"""The kinds of files that a threshold is about."""


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
        all_homes=len(status["homes"]),
        dead=sum(each["verdicts"]["dead"] or 0 for each in homes),
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
    kinds = sorted(home["disk"].items(), key=lambda kind: -kind[1])
    return {
        **home,
        "verdict_bar": _bar([(name, home["verdicts"][name] or 0) for name in VERDICTS]),
        "disk_total": sum(home["disk"].values()) if home["disk"] else None,
        "disk_bar": _bar(kinds),
        "meters": [_meter(each, home["disk"]) for each in home["thresholds"] if _known(each)],
        "pressed": [each["name"] for each in home["thresholds"] if each["pressure"]],
        "leaks": _leaks(home["leaked"]),
        "eligible": [each for each in home.get("policies", ()) if each["eligible"]],
        "runs": [each for each in runs if each["home"] == home["home"]][:_RUNS_MAX],
        "dead_change": _change(trend, home["verdicts"]["dead"]),
        "charts": home_charts(trend) if trend is not None else [],
    }


def _known(threshold: Mapping[str, Any]) -> bool:
    return threshold["value"] is not None


def _bar(parts: Sequence[tuple[str, float]], length: float = _BAR) -> list[dict[str, Any]]:
    """Return the parts that are not 0 as pieces of a bar, each with its place."""
    total = sum(size for _, size in parts) or 1
    pieces, x = [], 0.0
    for name, size in parts:
        if size:
            width = length * size / total
            pieces.append(
                {"name": name, "size": size, "x": round(x, 1), "width": round(max(width, 1.0), 1)}
            )
            x += width
    return pieces


def _meter(threshold: Mapping[str, Any], disk: Mapping[str, int]) -> dict[str, Any]:
    """Return a threshold as a bar that ends a little above its high watermark."""
    whole = (
        1.0 if threshold["name"] in _RATIOS else max(threshold["high"], threshold["value"]) * 1.1
    )

    def x(value: float) -> float:
        return round(_BAR * min(1.0, value / whole), 1)

    form = "percent" if threshold["name"] in _RATIOS else "size"
    kinds = [(kind, disk.get(kind, 0)) for kind in _KINDS.get(threshold["name"], ())]
    length = x(threshold["value"])
    return {
        **threshold,
        "form": "count" if threshold["name"] in _COUNTS else form,
        "width": length,
        # Of the kinds it is made of, in their colours; what has no kind is one piece.
        "pieces": _bar(kinds, length),
        "low_x": x(threshold["low"]),
        "high_x": x(threshold["high"]),
    }


def _leaks(leaked: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each source that leaks, the largest first, with a number for each cause."""
    by_source: dict[str, dict[str, int]] = {}
    for each in leaked:
        row = by_source.setdefault(each["source"], dict.fromkeys(CAUSES, 0))
        row[each["cause"]] = row.get(each["cause"], 0) + each["sessions"]
    rows = [
        {"source": source, "total": sum(row.values()), "causes": row}
        for source, row in by_source.items()
    ]
    return sorted(rows, key=lambda row: (-row["total"], row["source"]))


def _change(trend: Mapping[str, Any] | None, dead: int | None) -> dict[str, int] | None:
    """Return how the number of dead sessions changed within the last day, as far as it is known."""
    if trend is None or not trend["at"] or dead is None:
        return None
    newest = trend["at"][-1]
    first = next(number for number, at in enumerate(trend["at"]) if at >= newest - _DAY)
    seconds = newest - trend["at"][first]
    return {"dead": dead - trend["dead"][first], "seconds": seconds} if seconds >= _HOUR else None
