"""A real Prometheus server, and promtool."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real.waiting import wait_until

CONFIGURATION = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: {rule_files}
scrape_configs:
  - job_name: hermes-exporter
    static_configs: [{{targets: {targets}}}]
"""


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Evaluate an expression now: labels and value of each series."""
        answer = self.get("/api/v1/query", query=expression)
        return [(sample["metric"], float(sample["value"][1])) for sample in answer["result"]]

    def get(self, path: str, **parameters: str) -> Any:
        """The `data` of an API call."""
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=120) as response:
            return json.load(response)["data"]

    def wait_for(
        self,
        expression: str,
        condition: Callable[[list[tuple[dict[str, str], float]]], bool] = bool,
    ) -> list[tuple[dict[str, str], float]]:
        """Evaluate until the condition holds of the answer (by default: there is one)."""

        def evaluate() -> list[list[tuple[dict[str, str], float]]]:
            answer = self.query(expression)
            return [answer] if condition(answer) else []

        return wait_until(evaluate, f"Prometheus: {expression}")[0]


@contextmanager
def prometheus(
    targets: list[str],
    rule_files: list[Path] | None = None,
    configuration: str | None = None,
    data: Path | None = None,
) -> Iterator[Prometheus]:
    """Serve on a free loopback port, scraping `targets` ("host:port") every second.

    `data` is a folder with blocks to begin with; it is used and left as it then is.
    """
    text = configuration or CONFIGURATION.format(
        targets=json.dumps(targets), rule_files=json.dumps([str(path) for path in rule_files or []])
    )
    with tempfile.TemporaryDirectory(prefix="prometheus-") as folder:
        file = Path(folder, "prometheus.yml")
        file.write_text(text)
        port = free_port()
        log = Path(folder, "log")
        with (
            log.open("w") as output,
            subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={file}",
                    f"--storage.tsdb.path={data or Path(folder, 'data')}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            ) as process,
        ):
            try:
                server = Prometheus(f"http://127.0.0.1:{port}")
                wait_until(lambda: _is_ready(server, process, log), "Prometheus is ready")
                yield server
            finally:
                process.terminate()


def check_metrics(exposition: str) -> str:
    """What `promtool check metrics` has to say; nothing, when all is well."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=exposition, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def free_port() -> int:
    """One that stays free: the system gives none of these to a program that asks for any port."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def _is_ready(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        raise AssertionError(f"Prometheus ended with {process.returncode}\n{log.read_text()}")
    try:
        with urllib.request.urlopen(f"{server.url}/-/ready", timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False
