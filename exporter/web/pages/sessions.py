"""The list of open sessions, the busiest first, and the page of one session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

from exporter.runs.models import TRIMMED
from exporter.web.pages.environment import page
from exporter.web.pages.explanation import meaning, rule_sentence, what_would_change
from exporter.web.response import Response

_FILTERS: Final = ("verdict", "source", "home")
_ROWS_MAX: Final = 200
_LONG: Final = 500
"""A worker sends the list of a home with more open sessions once a minute, if it has changed."""
_SHORTEST_HOURS: Final = 0.25
"""A session of a few seconds is not the busiest because of its first message."""


def sessions_page(
    rows: Iterable[Mapping[str, Any]], query: str, now: float, left_out: int = 0
) -> Response:
    """Return the sessions that the query asks for; `left_out` more are open and not among them."""
    wanted = filters(query)
    values: dict[str, set[str]] = {name: set() for name in _FILTERS}
    found: list[dict[str, Any]] = []
    total = 0
    for row in rows:
        total += 1
        for name in _FILTERS:
            values[name].add(row[name])
        if all(row[name] == value for name, value in wanted.items()):
            found.append({**row, **_rates(row, now)})
    found.sort(key=lambda row: (-row["messages_per_hour"], -row["tokens_per_hour"], row["id"]))
    begin = _page_number(query) * _ROWS_MAX
    return page(
        "sessions.html",
        rows=found[begin : begin + _ROWS_MAX],
        matching=len(found),
        total=total,
        left_out=left_out,
        long=total > _LONG,
        begin=begin,
        wanted=wanted,
        values={name: sorted(each) for name, each in values.items()},
        earlier=_link(wanted, begin - _ROWS_MAX) if begin else None,
        later=_link(wanted, begin + _ROWS_MAX) if begin + _ROWS_MAX < len(found) else None,
    )


def filters(query: str) -> dict[str, str]:
    """Return the filters of a query string; empty ones and unknown names are left out."""
    given = parse_qs(query, max_num_fields=16)
    return {name: given[name][-1] for name in _FILTERS if name in given}


def _page_number(query: str) -> int:
    given = parse_qs(query, max_num_fields=16).get("page", ["0"])[-1]
    return min(int(given), 10_000) if given.isdecimal() and given.isascii() else 0


def _link(wanted: Mapping[str, str], begin: int) -> str:
    return "/sessions?" + urlencode({**wanted, "page": begin // _ROWS_MAX})


def _rates(row: Mapping[str, Any], now: float) -> dict[str, float]:
    began = row["started_at"]
    if began is None:
        return {"messages_per_hour": 0.0, "tokens_per_hour": 0.0}
    hours = max(_SHORTEST_HOURS, (now - began) / 3600)
    return {
        "messages_per_hour": row["messages"] / hours,
        "tokens_per_hour": row["tokens"] / hours,
    }


def session_page(found: Mapping[str, Any]) -> Response:
    """Return what `explain` says of one session."""
    return page(
        "session.html",
        session=found,
        meaning=meaning(found),
        rules=[(rule["holds"], rule_sentence(rule)) for rule in found["rules"]],
        change=what_would_change(found),
    )


def run_page(run: str, rows: list[dict[str, Any]]) -> Response:
    """Return what `history RUN` says of one run."""
    return page("run.html", run=run, rows=rows, why_trimmed=TRIMMED)
