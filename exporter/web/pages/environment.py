"""Templates to HTML. Jinja2 is loaded with the first page: most agents never serve one."""

from __future__ import annotations

import time
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from exporter import __version__
from exporter.collectors.prune_reasons import why_blocked, why_unreachable
from exporter.text import format_age, format_count, format_percent, format_size
from exporter.web.response import Response

if TYPE_CHECKING:
    import jinja2

HTML: Final = "text/html; charset=utf-8"
_FOLDER: Final = "templates"
_STATIC: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
# No inline script or style, and nothing from elsewhere: text of a home that slipped through the
# escaping could still do nothing.
_SECURITY_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def page(template: str, status: int = 200, **values: Any) -> Response:
    """Render a template."""
    found = _environment().get_template(template)
    text = found.render(version=__version__, now=time.time(), **values)
    return Response(status, text.encode("utf-8", "replace"), HTML, security_policy=_SECURITY_POLICY)


def static_file(name: str) -> Response | None:
    """Return a style sheet or script of the pages; None if there is none of this name."""
    content_type = _STATIC.get(name)
    return None if content_type is None else Response(200, _read("static", name), content_type)


@cache
def _read(folder: str, name: str) -> bytes:
    return resources.files(__package__).joinpath(folder, name).read_bytes()


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _read(_FOLDER, name).decode()),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        size=_or_unknown(format_size),
        count=_or_unknown(format_count),
        percent=_or_unknown(format_percent),
        rate=_format_rate,
        age=_or_unknown(format_age),
        words=lambda name: name.replace("_", " "),
        why_unreachable=why_unreachable,
        why_blocked=why_blocked,
        date=lambda at: time.strftime("%Y-%m-%d %H:%M", time.localtime(at)),
    )
    return environment


def _or_unknown(form: Any) -> Any:
    """None is a value that is not known; 0 would be a claim."""
    return lambda value: "?" if value is None else form(value)


def _format_rate(value: float) -> str:
    """Return `0`, `<0.1`, `4.2`, `1,250`: what is not nothing never looks like it."""
    if 0 < value < 0.05:
        return "<0.1"
    return f"{value:.1f}" if 0 < value < 99.95 else format_count(round(value))
