"""Homes in bad states, made with the real hermes-agent, and the agent that watches them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.real.agent import Agent, Metrics, agent
from tests.real.hermes import NEWEST, python_for
from tests.real.holders import holder, open_carelessly
from tests.real.homes import make_home
from tests.real.stub_model import stub_model
from tests.support.running_agent import configuration, when_down, when_up
from tests.support.small_homes import small_home
from tests.support.verdicts import IMPATIENT, leak

LEAKY, LOST, BROKEN = "leaky", "lost", "broken"


@contextmanager
def troubled_agent(folder: Path) -> Iterator[Agent]:
    """An agent with a home full of leaked sessions, one whose Hermes lost its WAL, and a wreck."""
    leaky = make_home(NEWEST, folder, LEAKY).path
    lost = folder / LOST
    lost.mkdir(mode=0o700)
    broken = small_home(folder / BROKEN)
    (broken / "state.db").write_bytes(b"no database at all\n" * 1000)
    with holder(python_for(NEWEST), lost) as process:
        process.ask("create", session="a")
        process.ask("append", session="a", count=10)
        process.ask("lose_database_lock")
        open_carelessly(lost)
        with watching({LEAKY: leaky, LOST: lost, BROKEN: broken}, folder) as running:
            when_up(running, LEAKY, LOST)
            when_down(running, BROKEN)
            yield running


@contextmanager
def killed_chats(folder: Path) -> Iterator[Agent]:
    """An agent with a home whose chats were really killed: idle, answering, and left behind."""
    home = folder / "killed"
    with stub_model() as model:
        model.configure(home)
        leak(python_for(NEWEST), home, model, "idle", "answering", "one-shot")
        with watching({"killed": home}, folder) as running:
            when_up(running, "killed")
            yield running


@contextmanager
def watching(homes: Mapping[str, Path], folder: Path) -> Iterator[Agent]:
    """An agent that is in a hurry to tell the dead."""
    settings = configuration(homes).replace("scan: {interval: 1s}\n", IMPATIENT)
    with agent(folder, configuration=settings) as running:
        yield running


def dead(metrics: Metrics) -> float:
    verdicts = metrics.by("hermes_sessions_open_by_verdict", "home", "source", "verdict")
    return sum(count for (_, _, verdict), count in verdicts.items() if verdict == "dead")
