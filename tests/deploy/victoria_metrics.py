"""A real VictoriaMetrics, which takes what Prometheus writes to it and answers like one."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.prometheus import Prometheus, free_port
from tests.real.waiting import wait_until


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[Prometheus]:
    """Serve on a free loopback port; what was written can be read at once."""
    port = free_port()
    log = folder / "victoria-metrics.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [
                "victoria-metrics",
                f"-storageDataPath={folder}/victoria-metrics",
                f"-httpListenAddr=127.0.0.1:{port}",
                "-search.latencyOffset=0s",
                "-search.disableCache",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            server = Prometheus(f"http://127.0.0.1:{port}")
            wait_until(lambda: _is_up(server.url, process, log), "VictoriaMetrics is up")
            yield server
        finally:
            process.terminate()


def _is_up(url: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        raise AssertionError(f"VictoriaMetrics ended with {process.returncode}\n{log.read_text()}")
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False
