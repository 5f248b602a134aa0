"""The agent itself, as users start it: a subprocess that is scraped over HTTP."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.real.command import PROGRAM
from tests.real.hermes import REPOSITORY
from tests.real.waiting import wait_until

Labels = frozenset[tuple[str, str]]
_LISTENING = re.compile(r'msg="?listening"?\s.*?\baddress="?([^\s"]+)')


class Metrics(dict[tuple[str, Labels], float]):
    """One scrape: sample name and labels to value."""

    def value(self, name: str, **labels: str) -> float:
        """The one sample with exactly these labels."""
        return self[name, frozenset(labels.items())]

    def by(self, name: str, *keys: str, **where: str) -> dict[tuple[str, ...], float]:
        """The samples of `name` that have the labels `where`, keyed by the values of `keys`."""
        wanted = frozenset(where.items())
        found: dict[tuple[str, ...], float] = {}
        for (sample, labels), value in self.items():
            if sample == name and wanted <= labels:
                values = dict(labels)
                key = tuple(values[key] for key in keys)
                assert key not in found, f"{name}: {keys} do not tell two series apart"
                found[key] = value
        return found

    def names(self) -> set[str]:
        return {name for name, _ in self}


class Agent:
    """A running agent."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        self.address = wait_until(self._find_address, "the agent logs its address")
        self.url = f"http://{self.address}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        """All that it has logged so far."""
        return self._log.read_text()

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        """Status and body of a GET."""
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def exposition(self) -> str:
        status, body = self.get("/metrics")
        assert status == 200, f"/metrics answered {status}"
        return body.decode()

    def metrics(self) -> Metrics:
        return Metrics(
            ((sample.name, frozenset(sample.labels.items())), sample.value)
            for family in text_string_to_metric_families(self.exposition())
            for sample in family.samples
        )

    def wait_ready(self) -> None:
        """Return when the first scan is done."""
        try:
            wait_until(lambda: self._answers("/-/ready"), "the agent is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def next_scan(self) -> Metrics:
        """The metrics of a scan that began after this call, of every home.

        The scan under way may have begun before: so each home is waited for twice.
        """
        self._wait_for_scan()
        return self._wait_for_scan()

    def stop(self, seconds: float = 90) -> int:
        """SIGTERM; return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=seconds)

    def kill(self) -> None:
        """SIGKILL, and wait for the process to be gone."""
        self.process.kill()
        self.process.wait()

    def _wait_for_scan(self) -> Metrics:
        now = time.time()
        return wait_until(lambda: self._scanned_since(now), "the agent has scanned again")[0]

    def _scanned_since(self, moment: float) -> list[Metrics]:
        metrics = self.metrics()
        scans = metrics.by("hermes_exporter_scan_timestamp_seconds", "home")
        return [metrics] if scans and all(at > moment for at in scans.values()) else []

    def _answers(self, path: str) -> bool:
        self._must_be_running()
        return self.get(path)[0] == 200

    def _find_address(self) -> str | None:
        self._must_be_running()
        found = _LISTENING.search(self.log())
        return found[1] if found else None

    def _must_be_running(self) -> None:
        if self.process.poll() is not None:
            raise AssertionError(f"agent ended with {self.process.returncode}\n{self.log()}")


@contextmanager
def agent(
    folder: Path,
    homes: Sequence[Path] = (),
    *flags: str,
    configuration: str = "scan: {interval: 1s}\n",
    environment: dict[str, str] | None = None,
    ready: bool = True,
    wrapper: Sequence[str] = (),
    program: Sequence[str] = PROGRAM,
) -> Iterator[Agent]:
    """Serve `homes` on a free loopback port; state, configuration and log are kept in `folder`.

    Started again in the same folder it finds its own state again. `wrapper` is what comes before
    its command line.
    """
    file = folder / "hermes-exporter.yml"
    file.write_text(configuration)
    log = folder / "agent.log"
    command = [*program, "serve", "--web.listen-address", "127.0.0.1:0"]
    command += ["--config.file", str(file), "--state-dir", str(folder / "state")]
    command += ["--agent.socket="]  # none, unless a test names one: commands of others would ask it
    for home in homes:
        command += ["--home", str(home)]
    with (
        log.open("w") as output,
        subprocess.Popen(
            [*wrapper, *command, *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
        ) as process,
    ):
        try:
            running = Agent(process, log)
            if ready:
                running.wait_ready()
            yield running
        finally:
            if process.poll() is None:
                process.terminate()
                _wait_or_kill(process)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=90)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError("the agent did not leave within 90 s of SIGTERM") from None
