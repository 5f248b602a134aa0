"""A real Alertmanager, and a receiver for what it sends."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.real.prometheus import free_port
from tests.real.waiting import wait_until


@dataclass(frozen=True)
class Alertmanager:
    """A running server."""

    address: str

    def post(self, alerts: Sequence[dict[str, dict[str, str]]]) -> None:
        """What Prometheus does: tell of alerts that fire now."""
        request = urllib.request.Request(
            f"http://{self.address}/api/v2/alerts",
            data=json.dumps(alerts).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120):
            pass

    def inhibited(self) -> dict[str, bool]:
        """Every alert by its name, and whether another one silences it."""
        with urllib.request.urlopen(f"http://{self.address}/api/v2/alerts", timeout=120) as answer:
            alerts = json.load(answer)
        return {each["labels"]["alertname"]: bool(each["status"]["inhibitedBy"]) for each in alerts}


@contextmanager
def alertmanager(configuration: str) -> Iterator[Alertmanager]:
    """Serve on a free loopback port, alone: no cluster."""
    program = shutil.which("prometheus-alertmanager") or "alertmanager"
    with tempfile.TemporaryDirectory(prefix="alertmanager-") as folder:
        file = Path(folder, "alertmanager.yml")
        file.write_text(configuration)
        address = f"127.0.0.1:{free_port()}"
        log = Path(folder, "log")
        with (
            log.open("w") as output,
            subprocess.Popen(
                [
                    program,
                    f"--config.file={file}",
                    f"--storage.path={folder}/data",
                    f"--web.listen-address={address}",
                    "--cluster.listen-address=",
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            ) as process,
        ):
            try:
                wait_until(lambda: _is_ready(address, process, log), "Alertmanager is ready")
                yield Alertmanager(address)
            finally:
                process.terminate()


class Receiver:
    """A webhook that keeps what it is told."""

    def __init__(self, address: str) -> None:
        self.url = f"http://{address}"
        self.notifications: list[tuple[str, dict[str, Any]]] = []
        """The path that was posted to, and the alert, for each alert of each notification."""

    def wait_for(self, alert: str, status: str) -> tuple[str, dict[str, Any]]:
        """Path and alert of the first that has this name and is `firing` or `resolved`."""

        def find() -> tuple[str, dict[str, Any]] | None:
            for path, each in list(self.notifications):
                if each["labels"]["alertname"] == alert and each["status"] == status:
                    return path, each
            return None

        return wait_until(find, f"{alert} is {status} at the receiver")


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listen on a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.notifications.extend((self.path, alert) for alert in body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Receiver(f"127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


def _is_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        raise AssertionError(f"Alertmanager ended with {process.returncode}\n{log.read_text()}")
    try:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False
