"""Counters never fall and end at the truth: across restarts, crashes and deletions by Hermes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.agent import Agent, Labels, Metrics, agent
from tests.real.hermes import NEWEST, Hermes, python_for
from tests.real.holders import holder
from tests.support.running_agent import when

COUNTERS = (
    "hermes_messages_total",
    "hermes_tool_calls_total",
    "hermes_api_calls_total",
    "hermes_tokens_total",
    "hermes_cost_usd_total",
)
OLD, NEW, NEWER = (f"2026010{day}_080000_aaaaaa" for day in (1, 2, 3))


class Ratchet:
    """Sees every scrape, and checks that no counter is ever less than before."""

    def __init__(self) -> None:
        self._highest: dict[tuple[str, Labels], float] = {}

    def see(self, metrics: Metrics) -> None:
        now = {key: value for key, value in metrics.items() if key[0] in COUNTERS}
        assert self._highest.keys() <= now.keys()
        for key, value in now.items():
            assert value >= self._highest.get(key, 0), f"{key} fell"
        self._highest = now

    def when_counted(self, running: Agent, messages: int) -> None:
        """Wait until this many messages are counted; more are an error."""

        def is_counted(metrics: Metrics) -> bool:
            self.see(metrics)
            counted = metrics.by("hermes_messages_total", "source").get(("cli",), 0)
            assert counted <= messages
            return counted == messages

        when(running, is_counted, f"{messages} messages are counted")


@pytest.fixture
def hermes() -> Hermes:
    return python_for(NEWEST)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


def test_counters_outlive_restarts_crashes_and_deletions(
    hermes: Hermes, home: Path, tmp_path: Path
) -> None:
    ratchet = Ratchet()
    with holder(hermes, home) as writer:
        writer.ask("create", session=OLD)
        writer.ask("append", session=OLD, count=10)
        with agent(tmp_path, [home]) as running:
            ratchet.when_counted(running, 10)
            assert running.stop() == 0
        writer.ask("append", session=OLD, count=5)
        with agent(tmp_path, [home]) as running:
            ratchet.when_counted(running, 15)
            writer.ask("create", session=NEW)
            writer.ask("append", session=NEW, count=3)
            ratchet.when_counted(running, 18)
            running.kill()
        assert hermes.run("delete_sessions", home, sessions=[OLD]) == [OLD]
        writer.ask("append", session=NEW, count=2)
        with agent(tmp_path, [home]) as running:
            ratchet.when_counted(running, 20)
            metrics = running.metrics()
            assert metrics.by("hermes_sessions_open", "source") == {("cli",): 1}
            assert hermes.run("delete_sessions", home, sessions=[NEW]) == [NEW]
            when(running, nothing_is_left, "the deletion is seen")
            ratchet.see(running.metrics())
            writer.ask("create", session=NEWER)
            writer.ask("append", session=NEWER, count=1)
            ratchet.when_counted(running, 21)


def nothing_is_left(metrics: Metrics) -> bool:
    return sum(metrics.by("hermes_sessions_open", "source").values()) == 0


def test_an_agent_killed_again_and_again_beside_a_busy_writer_loses_and_doubles_nothing(
    hermes: Hermes, home: Path, tmp_path: Path
) -> None:
    ratchet = Ratchet()
    with holder(hermes, home) as writer:
        writer.ask("create", session=NEW)
        writer.ask("start_writing", session=NEW)
        for _ in range(4):
            with agent(tmp_path, [home]) as running:
                for _ in range(10):
                    ratchet.see(running.metrics())
                running.kill()
        outcome = writer.ask("stop_writing")
        assert outcome["failure"] == ""
        with agent(tmp_path, [home]) as running:
            ratchet.when_counted(running, outcome["written"])
