"""The page at `/`: which homes this agent watches and where to look further."""

from __future__ import annotations

import base64
import hashlib
from html import escape

from exporter import __version__
from exporter.human import size
from exporter.web.board import Content, HomeRow
from exporter.web.response import Response

_MOST_ROWS = 200

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .3rem .8rem; text-align: left; border-bottom: 1px solid #8886; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.down { color: light-dark(#b00020, #ff8a80); font-weight: bold; }
nav a { margin-right: 1rem; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def landing_page(content: Content, telemetry_path: str) -> Response:
    """The page for this content."""
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
{_homes(content)}
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


def _homes(content: Content) -> str:
    if not content.ready:
        return "<p>The first scan is under way.</p>"
    if not content.homes:
        return "<p>No Hermes home was found on this host.</p>"
    rows = "\n".join(_row(home) for home in content.homes[:_MOST_ROWS])
    rest = len(content.homes) - _MOST_ROWS
    more = f"<p>and {rest} more</p>" if rest > 0 else ""
    return f"""<table>
<thead><tr><th>Home</th><th>State</th><th class="number">Open sessions</th>
<th class="number">Ended sessions</th><th class="number">Disk</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
{more}"""


def _row(row: HomeRow) -> str:
    state = "<td>up</td>" if row.up else '<td class="down">down</td>'
    numbers = (_count(row.sessions_open), _count(row.sessions_ended), size(row.disk_bytes))
    cells = "".join(f'<td class="number">{number}</td>' for number in numbers)
    return f"<tr><td>{escape(row.home)}</td>{state}{cells}</tr>"


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
