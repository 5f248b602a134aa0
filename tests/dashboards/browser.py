"""A real Chromium that looks at the dashboards.

The page is the project's own, built from Grafana's packages (`dashboards/render`); it asks the real
Prometheus through the little server here.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.real.chromium import Chromium, chromium
from tests.real.hermes import REPOSITORY
from tests.real.waiting import wait_until

PAGE = REPOSITORY / ".cache" / "render" / "dist"
ICONS = PAGE.parent / "node_modules" / "@grafana" / "ui" / "dist" / "public" / "img"
DASHBOARDS = REPOSITORY / "dashboards" / "grafana"
_TOP_OF_SECTION = """
const heading = [...document.querySelectorAll('*')].find(
  (each) => each.childElementCount === 0 && each.textContent.trim() === %s);
return heading.getBoundingClientRect().top + window.scrollY - 6;
"""
WIDTH = 1440
"""A laptop's."""


@dataclass(frozen=True)
class Looked:
    """What the page said of itself, and what it looked like."""

    panels: list[dict[str, Any]]
    errors: list[str]
    picture: bytes

    def troubles(self) -> list[str]:
        """Panels in error or without anything to show, and what the page complained of."""
        told = [f"{panel['title']}: {panel['error']}" for panel in self.panels if panel["error"]]
        empty = [panel["title"] for panel in self.panels if not panel["series"]]
        return [*self.errors, *told, *(f"{title}: shows nothing" for title in empty)]


class Browser:
    """Chromium before the page of the dashboards."""

    def __init__(self, window: Chromium, page: str) -> None:
        self._window = window
        self._page = page

    def look(self, dashboard: str, theme: str, since: float, until: float, **chosen: str) -> Looked:
        """Open a dashboard, wait until every panel has its data, take its picture."""
        asked = {"dashboard": dashboard, "theme": theme, **chosen}
        # Moments, not `now`: the past does not wait for slow machines.
        asked |= {"from": _moment(since), "to": _moment(until)}
        self._window.resize(WIDTH, 900)
        self._window.open(f"{self._page}/?{urllib.parse.urlencode(asked)}")
        panels = wait_until(self._settled, f"{dashboard} is drawn", seconds=120)
        self._window.after_painting()
        height = int(self.run("return document.getElementById('board').scrollHeight"))
        self._window.resize(WIDTH, height)
        panels = wait_until(self._settled, f"{dashboard} is drawn at its full height")
        self._window.after_painting()
        errors = self.run("return [...window.queryErrors, ...window.pageErrors]")
        return Looked(panels, errors, self._window.picture())

    def screens(self, height: int, section: str = "") -> bytes:
        """A picture of part of what is open: from the top, or from the heading of a section."""
        top = 0
        if section:
            top = int(self.run(_TOP_OF_SECTION % json.dumps(section)))
        return self._window.part(WIDTH, height, top, beyond=False)

    def run(self, script: str) -> Any:
        """The answer of a script in the page."""
        return self._window.run(script)

    def _settled(self) -> list[dict[str, Any]]:
        broken = self.run("return window.pageErrors ?? []")
        if broken:
            raise AssertionError(f"the page broke: {broken}")
        panels = self.run("return window.panelReport ? window.panelReport() : []")
        return panels if panels and all(p["state"] in ("Done", "Error") for p in panels) else []


@contextmanager
def browser(prometheus_url: str) -> Iterator[Browser]:
    """Chromium with the page of the dashboards, in front of this Prometheus."""
    if not (PAGE / "index.html").exists():
        raise AssertionError("the page is not built; run scripts/render-dashboards.sh")
    with _page_server(prometheus_url) as page, chromium() as window:
        yield Browser(window, page)


class _Server(ThreadingHTTPServer):
    """All panels of a dashboard ask at once."""

    request_queue_size = 256


@contextmanager
def _page_server(prometheus_url: str) -> Iterator[str]:
    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, directory=str(PAGE), **options)

        def do_GET(self) -> None:
            if self.path.startswith("/prometheus/"):
                self._pass_on(None)
            elif self.path.startswith("/public/"):
                self._answer(200, _icon(self.path), "image/svg+xml")
            elif self.path.startswith("/dashboards/"):
                self._answer(200, (DASHBOARDS / Path(self.path).name).read_bytes())
            else:
                super().do_GET()

        def do_POST(self) -> None:
            self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

        def _pass_on(self, body: bytes | None) -> None:
            url = prometheus_url + self.path.removeprefix("/prometheus")
            try:
                with urllib.request.urlopen(url, data=body, timeout=60) as response:
                    self._answer(200, response.read())
            except urllib.error.HTTPError as error:
                with error:
                    self._answer(error.code, error.read())

        def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _icon(path: str) -> bytes:
    """Grafana's icons are where its server would have them, but for the first folders."""
    name = path.split("?")[0].partition("/img/")[2]
    file = ICONS.joinpath(*(part for part in name.split("/") if part != ".."))
    return file.read_bytes() if file.is_file() else b"<svg xmlns='http://www.w3.org/2000/svg'/>"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
