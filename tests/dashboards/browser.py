"""A real Chromium, driven through chromedriver, that looks at the dashboards.

The page is the project's own, built from Grafana's packages (`dashboards/render`); it asks the real
Prometheus through the little server here.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
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

from tests.real.hermes import REPOSITORY
from tests.real.prometheus import free_port
from tests.real.waiting import wait_until

PAGE = REPOSITORY / ".cache" / "render" / "dist"
ICONS = PAGE.parent / "node_modules" / "@grafana" / "ui" / "dist" / "public" / "img"
DASHBOARDS = REPOSITORY / "dashboards" / "grafana"
WIDTH = 1440
"""A laptop's."""

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-device-scale-factor=1",
]


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
    """A session of chromedriver."""

    def __init__(self, driver: str, session: str, page: str) -> None:
        self._session = f"{driver}/session/{session}"
        self._page = page

    def look(self, dashboard: str, theme: str, since: float, until: float, **chosen: str) -> Looked:
        """Open a dashboard, wait until every panel has its data, take its picture."""
        asked = {"dashboard": dashboard, "theme": theme, **chosen}
        # Moments, not `now`: the past does not wait for slow machines.
        asked |= {"from": _moment(since), "to": _moment(until)}
        self._resize(900)
        _send(f"{self._session}/url", {"url": f"{self._page}/?{urllib.parse.urlencode(asked)}"})
        panels = wait_until(self._settled, f"{dashboard} is drawn", seconds=120)
        self._after_painting()
        self._resize(int(self.run("return document.getElementById('board').scrollHeight")))
        panels = wait_until(self._settled, f"{dashboard} is drawn at its full height")
        self._after_painting()
        errors = self.run("return [...window.queryErrors, ...window.pageErrors]")
        picture = _send(f"{self._session}/screenshot", None)
        return Looked(panels, errors, base64.b64decode(picture))

    def first_screens(self, height: int) -> bytes:
        """A picture of the upper part of what is open."""
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
        command = {"cmd": "Page.captureScreenshot", "params": {"format": "png", "clip": clip}}
        return base64.b64decode(_send(f"{self._session}/goog/cdp/execute", command)["data"])

    def run(self, script: str) -> Any:
        """The answer of a script in the page."""
        return _send(f"{self._session}/execute/sync", {"script": script, "args": []})

    def _settled(self) -> list[dict[str, Any]]:
        broken = self.run("return window.pageErrors ?? []")
        if broken:
            raise AssertionError(f"the page broke: {broken}")
        panels = self.run("return window.panelReport ? window.panelReport() : []")
        return panels if panels and all(p["state"] in ("Done", "Error") for p in panels) else []

    def _after_painting(self) -> None:
        script = (
            "const done = arguments[0]; const frame = requestAnimationFrame; document.fonts.ready"
            ".then(() => frame(() => frame(() => requestIdleCallback(() => done(true)))))"
        )
        _send(f"{self._session}/execute/async", {"script": script, "args": []})

    def _resize(self, height: int) -> None:
        """Of the page itself, whatever the window takes for its own."""
        size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": size}
        _send(f"{self._session}/goog/cdp/execute", command)


@contextmanager
def browser(prometheus_url: str) -> Iterator[Browser]:
    """Chromium with the page of the dashboards, in front of this Prometheus."""
    if not (PAGE / "index.html").exists():
        raise AssertionError("the page is not built; run scripts/render-dashboards.sh")
    port = free_port()
    with (
        _page_server(prometheus_url) as page,
        tempfile.TemporaryDirectory(prefix="chromium-") as profile,
        subprocess.Popen(
            ["chromedriver", f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as driver,
    ):
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: _is_ready(url), "chromedriver is ready")
            options = {"args": [*_FLAGS, f"--user-data-dir={profile}"]}
            wanted = {"alwaysMatch": {"goog:chromeOptions": options}}
            session = _send(f"{url}/session", {"capabilities": wanted})["sessionId"]
            yield Browser(url, session, page)
            _request("DELETE", f"{url}/session/{session}", None)
        finally:
            driver.terminate()


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


def _is_ready(driver: str) -> bool:
    try:
        return bool(_request("GET", f"{driver}/status", None)["ready"])
    except (urllib.error.URLError, ConnectionError):
        return False


def _send(url: str, body: dict[str, Any] | None) -> Any:
    return _request("GET" if body is None else "POST", url, body)


def _request(method: str, url: str, body: dict[str, Any] | None) -> Any:
    """The value of the answer; what went wrong, as chromedriver tells it."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=180) as response:
            return json.load(response)["value"]
    except urllib.error.HTTPError as error:
        with error:
            told = json.loads(error.read())["value"]["message"]
        raise AssertionError(f"chromedriver: {told}") from None
