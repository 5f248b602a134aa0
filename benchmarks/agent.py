"""Our agent as a user runs it: `hermes-exporter serve` in its own process."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = 0.005


class Agent:
    """A running agent."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, config: Path) -> None:
        self._process = process
        self._log = log
        self._config = config
        self._until = time.monotonic() + _PATIENCE_SECONDS
        self.pid = process.pid
        self.port = int(self._awaited(r"listening.* address=\S+:(\d+)"))

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def wait_until_ready(self) -> None:
        """Return once every home has been scanned."""
        while self.get("/-/ready")[0] != 200:
            self._pause("is not ready")

    def scans(self) -> float:
        """Return a figure that changes with every finished scan."""
        _, text = self.get("/metrics")
        moments = re.findall(r"^hermes_exporter_scan_timestamp_seconds\S* (\S+)$", text, re.M)
        return max(map(float, moments), default=0.0)

    def wait_for_scans(self, count: int) -> None:
        """Return after this many more scans have finished."""
        for _ in range(count):
            before = self.scans()
            while self.scans() == before:
                self._pause("does not scan")

    def scan_every(self, interval: str) -> None:
        """Change its interval; return after it was reloaded and the next scan has finished."""
        reloads = self._reloads()
        before = self.scans()
        configure(self._config, interval)
        self._process.send_signal(signal.SIGHUP)
        while self._reloads() == reloads or self.scans() == before:
            self._pause("does not reload")

    def _reloads(self) -> int:
        return self._log.read_text().count('msg="configuration reloaded"')

    def _awaited(self, pattern: str) -> str:
        while (found := re.search(pattern, self._log.read_text())) is None:
            self._pause("does not listen")
        return found[1]

    def _pause(self, trouble: str) -> None:
        if self._process.poll() is not None or time.monotonic() > self._until:
            raise RuntimeError(f"the agent {trouble}: {self._log.read_text()[-500:]}")
        time.sleep(_POLL_SECONDS)


def configure(config: Path, interval: str) -> None:
    """Write a configuration with this interval between scans."""
    config.write_text(f"scan: {{interval: {interval}}}\n")


@contextmanager
def running(
    *homes: Path, interval: str, python: str | Path = sys.executable, socket: str = ""
) -> Iterator[Agent]:
    """Start an agent that scans only these homes; it is stopped when the block ends.

    Commands can ask it if it has a socket.
    """
    with tempfile.TemporaryDirectory(prefix="hermes-exporter-bench-") as folder:
        log, config = Path(folder, "log"), Path(folder, "config.yaml")
        configure(config, interval)
        command = [str(python), "-m", "exporter", "serve"]
        command += [word for home in homes for word in ("--home", str(home))]
        command += ["--state-dir", f"{folder}/state", f"--agent.socket={socket}"]
        command += ["--config.file", str(config), "--web.listen-address", "127.0.0.1:0"]
        with log.open("wb") as stream, subprocess.Popen(command, stderr=stream) as process:
            try:
                yield Agent(process, log, config)
            finally:
                process.terminate()
