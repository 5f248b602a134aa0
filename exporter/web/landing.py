"""The page at `/`: the homes that this agent watches, and links to the other pages."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from html import escape

from exporter import __version__
from exporter.text import format_age, format_size
from exporter.web.published import HomeRow, PublishedContent
from exporter.web.response import Response

_MOST_ROWS = 200

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .3rem .8rem; text-align: left; border-bottom: 1px solid #8886; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.down { color: light-dark(#b00020, #ff8a80); font-weight: bold; }
.blind { color: light-dark(#8a5a00, #ffcc80); }
small { display: block; font-weight: normal; }
nav a { margin-right: 1rem; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def landing_page(
    content: PublishedContent, telemetry_path: str, clock: Callable[[], float] = time.time
) -> Response:
    """Return the page for this content."""
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>hermes-exporter</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>hermes-exporter</h1>
<p>Version {escape(__version__)}</p>
<nav>{_links(telemetry_path)}</nav>
<h2>Homes</h2>
{_homes(content, clock())}
</body>
</html>
"""
    return Response(
        200,
        page.encode("utf-8", "replace"),
        content_type="text/html; charset=utf-8",
        security_policy=_SECURITY_POLICY,
    )


def _links(telemetry_path: str) -> str:
    links = {
        telemetry_path: "Metrics",
        "/api/v1/status": "Status (JSON)",
        "/api/v1/sessions": "Sessions (JSON)",
        "/-/healthy": "Healthy",
        "/-/ready": "Ready",
    }
    return "".join(f'<a href="{escape(path)}">{name}</a>' for path, name in links.items())


def _homes(content: PublishedContent, now: float) -> str:
    if not content.ready:
        return "<p>The first scan is under way.</p>"
    refused = _refused(content.refused)
    if not content.homes:
        return f"<p>No Hermes home was found on this host.</p>{refused}"
    rows = "\n".join(_row(home, now) for home in content.homes[:_MOST_ROWS])
    rest = len(content.homes) - _MOST_ROWS
    more = f"<p>and {rest} more</p>" if rest > 0 else ""
    return f"""<table>
<thead><tr><th>Home</th><th>State</th><th class="number">Open sessions</th>
<th class="number">Ended sessions</th><th class="number">Disk</th>
<th class="number">Last scan</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
{more}{refused}"""


def _refused(count: int) -> str:
    if not count:
        return ""
    what = "1 directory looks like a home and is not watched"
    if count > 1:
        what = f"{count} directories look like homes and are not watched"
    return f'<p class="blind">{what}; <code>hermes-exporter check</code> tells why.</p>'


def _row(row: HomeRow, now: float) -> str:
    sessions = f"{_count(row.sessions_open)}{_small(_verdicts(row))}"
    scanned = (
        "never" if row.scanned_at is None else f"{format_age(max(0.0, now - row.scanned_at))} ago"
    )
    numbers = (sessions, _count(row.sessions_ended), format_size(row.disk_bytes), scanned)
    cells = "".join(f'<td class="number">{number}</td>' for number in numbers)
    return f"<tr><td>{escape(row.home)}</td>{_state(row)}{cells}</tr>"


def _state(row: HomeRow) -> str:
    if not row.up:
        return f'<td class="down">down{_small(row.trouble)}</td>'
    if row.blind:
        return f'<td>up<small class="blind">blind: {escape(", ".join(row.blind))}</small></td>'
    return "<td>up</td>"


def _verdicts(row: HomeRow) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in row.verdicts if count)


def _small(text: str) -> str:
    return f"<small>{escape(text)}</small>" if text else ""


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
