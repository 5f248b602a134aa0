"""The runbooks of the alerts, as pages: what on-call opens from a notification.

Their Markdown is ours. Still, HTML in it is escaped, and a link may only have a usual scheme: so a
file that was tampered with can show wrong text, and do nothing else.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Any, Final

from exporter.web.pages.environment import page
from exporter.web.response import Response

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_FOLDERS: Final = (
    os.path.join(_PACKAGE, "files", "runbooks"),
    os.path.join(os.path.dirname(_PACKAGE), "dashboards", "runbooks"),
    "/usr/share/hermes-exporter/runbooks",
)
"""In a wheel, in a checkout, and where the Debian package has them."""
_NAME = re.compile(r"[A-Za-z]{1,64}", re.ASCII)
_ALERT = re.compile(r"\bHermes[A-Z][A-Za-z]+\b")


def runbooks_page() -> Response:
    """Return the list of all runbooks."""
    names = runbook_names()
    return page("runbooks.html", runbooks=[(name, _meaning(_text(name))) for name in names])


def runbook_page(name: str) -> Response | None:
    """Return one runbook; None if there is none of this name."""
    return _page(name) if name in runbook_names() else None


@cache
def runbook_names() -> tuple[str, ...]:
    """Return the names of all runbooks, which are those of their alerts."""
    files = os.listdir(_folder()) if _folder() else []
    names = (file.removesuffix(".md") for file in files if file.endswith(".md"))
    return tuple(sorted(name for name in names if _NAME.fullmatch(name)))


@cache
def _page(name: str) -> Response:
    return page("runbook.html", name=name, html=_html(name, _text(name)))


@cache
def _folder() -> str:
    return next((folder for folder in _FOLDERS if os.path.isdir(folder)), "")


def _text(name: str) -> str:
    with open(os.path.join(_folder(), f"{name}.md"), encoding="utf-8") as file:
        return file.read()


def _meaning(text: str) -> str:
    """Return the first sentence of what the alert means."""
    paragraph = text.partition("## What it means\n\n")[2].partition("\n\n")[0]
    return re.split(r"(?<=[.!])\s", " ".join(paragraph.split()), maxsplit=1)[0].replace("`", "")


def _html(name: str, text: str) -> Any:
    """Return the text as HTML that a template may take as it is."""
    from markdown_it import MarkdownIt  # loaded with the first page, as Jinja2 is
    from markupsafe import Markup, escape

    # Without HTML of its own the text can make only the elements that Markdown has; links of other
    # schemes than http, https and mailto stay text.
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    others = frozenset(runbook_names()) - {name}

    def link(found: re.Match[str]) -> str:
        other = found[0]
        return f'<a href="/runbooks/{other}">{other}</a>' if other in others else other

    def plain_text(_: object, tokens: Any, index: int, *_rest: object) -> str:
        return _ALERT.sub(link, str(escape(tokens[index].content)))

    parser.add_render_rule("text", plain_text)
    return Markup(parser.render(text))  # noqa: S704 - made by the parser, from escaped text
