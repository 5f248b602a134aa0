"""Agents whose pages are looked at: the demo, and one of a home of 10,000 sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from exporter.demo.home import make
from exporter.demo.state import write_settings, write_state
from tests.real.agent import Agent, agent
from tests.real.command import run
from tests.support.fabricate.database import MessageRow, SessionRow, StateDatabase
from tests.support.running_agent import when

SESSIONS = 10_000
OPEN = 2_400
_SOURCES = ("cli", "tui", "cron", "subagent", "telegram")
NAME = "pages.test"
"""Resolved by the browser alone; without TLS it is no secure context, as another host is none."""


@contextmanager
def demo(folder: Path, wrapper: Sequence[str] = ()) -> Iterator[Agent]:
    """The demo home after a run that can be taken back."""
    now = time.time()
    home = make(str(folder), now=now)
    write_state(str(folder / "state"), home, now=now)
    settings = write_settings(str(folder))
    where = ("--home", home, "--state-dir", folder / "state", "--config.file", settings)
    assert run("prune", "--yes", "--policy", "request_dumps", *where).returncode == 0
    text = Path(settings).read_text() + "scan: {interval: 2s}\n"
    flag = f"--web.allowed-host={NAME}"
    with agent(folder, [Path(home)], flag, configuration=text, wrapper=wrapper) as running:
        when(
            running,
            lambda found: sum(found.by("hermes_prune_pressure", "home", "threshold").values()) > 0,
            "the thresholds are checked",
        )
        yield running


@contextmanager
def large(folder: Path) -> Iterator[Agent]:
    """A home of 10,000 sessions, of which 2,400 were never ended."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "sessions").mkdir()
    now = time.time()
    with StateDatabase(str(home / "state.db")) as state:
        for number in range(SESSIONS):
            began = now - 300 * number - 7200
            ended = None if number % 25 < 6 else began + 60
            name = time.strftime("%Y%m%d_%H%M%S", time.gmtime(began)) + f"_{number:06x}"
            source = _SOURCES[number % len(_SOURCES)]
            said = [
                MessageRow(name, "user", "what is it?", began + 1),
                MessageRow(name, "assistant", "this", began + 2, finish_reason="stop"),
            ]
            reason = None if ended is None else "cli_close"
            state.add_session(SessionRow(name, source, began, ended, reason), said)
    configuration = "scan: {interval: 5s}\nreaper: {private_homes: true}\n"
    with agent(folder, [home], configuration=configuration) as running:
        when(
            running,
            lambda found: (
                sum(found.by("hermes_sessions_open_by_verdict", "source", verdict="dead").values())
                > 0
            ),
            "sessions are found dead",
        )
        yield running
