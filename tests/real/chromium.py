"""A real Chromium, driven through chromedriver."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.real.prometheus import free_port
from tests.real.waiting import wait_until

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


class Chromium:
    """A session of chromedriver."""

    def __init__(self, driver: str, session: str) -> None:
        self._session = f"{driver}/session/{session}"

    def open(self, url: str) -> None:
        """Return when the page and what it refers to are loaded."""
        _send(f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """The answer of a script in the page."""
        body = {"script": script, "args": list(arguments)}
        return _send(f"{self._session}/execute/sync", body)

    def run_until_done(self, script: str, *arguments: Any) -> Any:
        """The answer of a script that gives it to a function, its last argument."""
        body = {"script": script, "args": list(arguments)}
        return _send(f"{self._session}/execute/async", body)

    def tell(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        body = {"cmd": command, "params": parameters}
        return _send(f"{self._session}/goog/cdp/execute", body)

    def press(self, *keys: str) -> None:
        """Keys, one after another, as a person presses them: a character or a WebDriver code."""
        steps = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keyboard", "actions": steps}]
        _send(f"{self._session}/actions", {"actions": actions})

    def point(self, x: int, y: int) -> None:
        """Move the mouse there, in the part of the page that is in sight."""
        steps = [{"type": "pointerMove", "duration": 0, "x": x, "y": y, "origin": "viewport"}]
        actions = [{"type": "pointer", "id": "mouse", "actions": steps}]
        _send(f"{self._session}/actions", {"actions": actions})

    def resize(self, width: int, height: int) -> None:
        """Of the page itself, whatever the window takes for its own."""
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def picture(self) -> bytes:
        """What is in sight, as PNG."""
        return base64.b64decode(_send(f"{self._session}/screenshot", None))

    def part(self, width: int, height: int, top: int = 0, *, beyond: bool = True) -> bytes:
        """A picture of part of the page, whatever is in sight.

        To go `beyond` the window, Chromium resizes it for the moment, and a page may draw anew.
        """
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        return base64.b64decode(
            self.tell(
                "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=beyond
            )["data"]
        )

    def after_painting(self) -> None:
        self.run_until_done(
            "const done = arguments[0]; const frame = requestAnimationFrame; document.fonts.ready"
            ".then(() => frame(() => frame(() => requestIdleCallback(() => done(true)))))"
        )

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What was logged since the last call: `browser` (its console) or `performance`."""
        found: list[dict[str, Any]] = _send(f"{self._session}/se/log", {"type": kind})
        return found


@contextmanager
def chromium(*flags: str) -> Iterator[Chromium]:
    """Without a profile of before; it is gone afterwards."""
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile,
        subprocess.Popen(
            ["chromedriver", f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as driver,
    ):
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: _is_ready(url), "chromedriver is ready")
            options = {"args": [*_FLAGS, *flags, f"--user-data-dir={profile}"]}
            wanted = {
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }
            body = {"capabilities": {"alwaysMatch": wanted}}
            session = _send(f"{url}/session", body)["sessionId"]
            yield Chromium(url, session)
            _request("DELETE", f"{url}/session/{session}", None)
        finally:
            driver.terminate()


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
