"""Watch the verdicts of a running agent, and make sessions that leaked."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from tests.real.agent import Agent, Metrics, agent
from tests.real.cli import Chat, chat, chat_once, kanban_worker
from tests.real.hermes import REPOSITORY, Hermes
from tests.real.stub_model import StubModel
from tests.real.waiting import wait_until
from tests.support.running_agent import scanned_again

T = TypeVar("T")
HOME = "watched"
MIN_IDLE_SECONDS = 1
IMPATIENT = (
    f"scan: {{interval: 300ms}}\nreaper: {{min_idle: {MIN_IDLE_SECONDS}s, interval: 300ms}}\n"
)
PRESUME = "presume_after: {server: 3s, chat: 8s}"
"""Settings of the reaper; without them it presumes nothing in the time of a test."""
_PRESUMED_BESIDE = {"server", "chat", "unknown_program"}


class Watch:
    """Reads the verdicts several times per scan, so that none is missed."""

    def __init__(self, running: Agent) -> None:
        self.agent = running
        self.ever: defaultdict[str, set[str]] = defaultdict(set)
        """Every verdict that was reported for a session."""
        self.proven: set[str] = set()
        """Sessions that were reported dead beside no process that may run them."""
        self._rows: dict[str, dict[str, Any]] = {}
        self._times_read = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def verdict(self, session: str) -> str | None:
        """Return the verdict; None if the session is not open."""
        row = self._rows.get(session)
        return None if row is None else row["verdict"]

    def evidence(self, session: str) -> list[tuple[str, str]]:
        """Return the evidence for the verdict: kind and detail."""
        return [(each["kind"], each["detail"]) for each in self._rows[session]["evidence"]]

    def names(self, pid: int, session: str) -> bool:
        """True if the evidence on a session names this process as one that may run it."""
        return any(f"process {pid} " in detail for _, detail in self.evidence(session))

    def wait_for(self, verdict: str, *sessions: str) -> None:
        """Return when all these sessions have this verdict."""

        def have() -> bool:
            return all(self.verdict(session) == verdict for session in sessions)

        try:
            wait_until(have, f"all are {verdict}")
        except AssertionError as error:
            told = {session: self._rows.get(session) for session in sessions}
            raise AssertionError(f"{error}\n{json.dumps(told, indent=1)}") from None

    def scans(self, times: int = 2) -> Metrics:
        """Return the metrics after the home was scanned this many more times, and once more.

        By then the verdicts of these scans have been read too.
        """
        metrics = scanned_again(self.agent, HOME, times + 1)
        enough = self._times_read + 2  # the reading in progress may have started before
        wait_until(lambda: self._times_read >= enough, "the verdicts are read")
        return metrics

    def leaks(self) -> dict[str, float]:
        """Return the dead sessions of people's chats, by how their last turn ended."""
        leaked = self.scans().by("hermes_sessions_leaked", "cause", home=HOME, source="cli")
        return {cause: count for (cause,), count in leaked.items() if count}

    def reaped(self, **labels: str) -> int:
        """Return how many sessions were ended so far, by the agent or by hand."""
        return int(sum(self._counted("hermes_reaper_reaped_total", **labels)))

    def reopened(self, **labels: str) -> int:
        """Return how many of them were reopened, because they were in use."""
        return int(sum(self._counted("hermes_reaper_reopened_total", **labels)))

    def breaker_is_open(self) -> bool:
        return any(self._counted("hermes_reaper_breaker_open"))

    def _counted(self, name: str, **labels: str) -> list[float]:
        """Return values from the metrics: a query of the database would hold it open."""
        wanted = labels.items()
        return [
            value
            for (sample, found), value in self.agent.metrics().items()
            if sample == name and wanted <= found
        ]

    def wait_until_reaped(self, sessions: int) -> None:
        try:
            wait_until(lambda: self.reaped() >= sessions, f"{sessions} sessions are reaped")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.agent.log()}\n{self._rows}") from None
        assert self.reaped() == sessions

    def forget(self) -> None:
        self.ever.clear()
        self.proven.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._stop.wait(0.1):
            status, body = self.agent.get("/api/v1/sessions")
            assert status == 200, body
            self._rows = {row["id"]: row for row in json.loads(body)}
            for session, row in self._rows.items():
                self.ever[session].add(row["verdict"])
                kinds = {each["kind"] for each in row["evidence"]}
                if row["verdict"] == "dead" and not kinds & _PRESUMED_BESIDE:
                    self.proven.add(session)
            self._times_read += 1


@contextmanager
def watching(
    folder: Path,
    home: Path,
    more: str = "",
    *,
    reaper: str = "",
    scan_interval: str = "300ms",
    environment: dict[str, str] | None = None,
) -> Iterator[Watch]:
    """Run an agent with short times: a second without activity is idle enough.

    `reaper` are more settings of the reaper, for example `mode: enforce`.
    """
    settings = IMPATIENT.replace("interval: 300ms", f"interval: {scan_interval}", 1)
    settings = settings.replace("reaper: {", f"reaper: {{{reaper}, " if reaper else "reaper: {")
    named = json.dumps([{"path": str(home), "name": HOME}])
    text = f"{settings}discover: false\nhomes: {named}\n{more}"
    folder.mkdir(exist_ok=True)
    with (
        agent(folder, configuration=text, environment=environment) as running,
        Watch(running) as watch,
    ):
        yield watch


def sessions_seen_by(wrapper: Sequence[str], home: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """Return what `sessions --json` says when it is run by `wrapper`, by id, once all are idle."""

    def seen() -> tuple[list[dict[str, Any]]] | None:
        began = time.time()
        rows = json.loads(_command(wrapper, home, folder, "sessions", "--json"))
        idle = all(row["last_activity_at"] < began - MIN_IDLE_SECONDS for row in rows)
        return (rows,) if idle else None

    (rows,) = wait_until(seen, "every session is idle")
    return {row["id"]: row for row in rows}


def checked_by(wrapper: Sequence[str], home: Path, folder: Path) -> dict[str, Any]:
    """Return what `check --json` says of the home when it is run by `wrapper`."""
    (found,) = json.loads(_command(wrapper, home, folder, "check", "--json"))["homes"]
    assert isinstance(found, dict)
    return found


def blindness_seen_by(wrapper: Sequence[str], home: Path, folder: Path) -> set[str]:
    """Return the reasons of `hermes_exporter_blind` in the metrics that `wrapper` makes."""
    file = folder / "metrics.prom"
    _command(wrapper, home, folder, "textfile", str(file))
    return {
        sample.labels["reason"]
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
        if sample.name == "hermes_exporter_blind" and sample.value == 1
    }


def _command(wrapper: Sequence[str], home: Path, folder: Path, *words: str) -> str:
    settings = folder / "command.yml"
    settings.write_text(IMPATIENT)
    settings.chmod(0o644)
    done = subprocess.run(
        [
            *(*wrapper, sys.executable, "-m", "exporter", *words),
            *("--config.file", str(settings), "--home", str(home)),
            *("--state-dir", str(folder / "command-state")),
        ],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    return done.stdout


def enter_together(stack: ExitStack, *managers: AbstractContextManager[T]) -> list[T]:
    """Enter all in parallel: each takes seconds, most of them waiting."""
    with ThreadPoolExecutor(len(managers)) as pool:
        return list(pool.map(stack.enter_context, managers))


WAYS_TO_LEAK = ("idle", "answering", "tool", "one-shot", "kanban")


def leak(hermes: Hermes, home: Path, model: StubModel, *ways: str) -> dict[str, str]:
    """Make sessions that no process runs any more, by how they were left."""

    def killed(until: Callable[[Chat], str]) -> str:
        with chat(hermes, home) as window:
            session = until(window)
            window.kill()
        return session

    known: dict[str, Callable[[], str]] = {
        "idle": lambda: killed(Chat.say),
        "answering": lambda: killed(lambda window: window.ask_for_ever(model)),
        "tool": lambda: killed(Chat.use_tool_for_ever),
        "one-shot": lambda: chat_once(hermes, home),
        "kanban": lambda: kanban_worker(hermes, home),
    }
    with ThreadPoolExecutor(3) as pool:
        jobs = {way: pool.submit(known[way]) for way in ways}
        return {way: job.result() for way, job in jobs.items()}


def a_week_passes(home: Path) -> None:
    """Move every timestamp of every session a week back, while others have the database open."""
    week = 7 * 86400
    sql = (
        f"UPDATE messages SET timestamp = timestamp - {week};"
        f"UPDATE sessions SET started_at = started_at - {week};"
    )
    command = ["sqlite3", "-cmd", ".timeout 60000", str(home / "state.db"), sql]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
