"""Events between the plan of an automatic prune and its execution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from exporter.agent.auto_prune import AutomaticPruner
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.state_store import StateStore
from exporter.config.load import load
from exporter.config.settings import Settings
from tests.real.hermes import NEWEST, python_for
from tests.real.waiting import wait_until
from tests.support.session_pruning import dump_all, prunable_process

EMPTY = tuple(f"20250101_00000{number}_aaaaaa" for number in range(6))
PRUNING = """
prune:
  mode: enforce
  interval: 1ms
  cooldown: 1s
  keep: {newest: 1}
  caps: {share: 100%}
  thresholds: {empty_sessions: {high: 3, low: 1}}
"""


def sessions(home: Path) -> int:
    return len(dump_all(home)["sessions"])


def empty_sessions(folder: Path) -> Path:
    """Make a home with more empty sessions than the threshold allows."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    with prunable_process(python_for(NEWEST), home) as writer:
        for session in EMPTY:
            writer.ask("old", session=session, count=0)
    return home


def settings(folder: Path, text: str) -> Settings:
    file = folder / "agent.yml"
    file.write_text(text)
    return load(str(file))


@contextmanager
def rounds(home: Path, folder: Path, text: str) -> Iterator[ScanLoop]:
    journal = StateStore.in_memory()
    running = ScanLoop(settings(folder, text), journal, named=[str(home)])
    try:
        yield running
    finally:
        running.close()
        journal.close()


@contextmanager
def waiting_for_its_turn(running: ScanLoop, home: Path) -> Iterator[AutomaticPruner]:
    """While a run in another home is in progress, this home has been planned for."""
    pruner = running._pruner
    assert pruner is not None
    with pruner._lock_of(home.stat().st_uid):
        running.run(60.0)
        running.run(60.0)
        assert pruner._busy == {str(home)}
        yield pruner


def test_who_comes_while_a_prune_waits_for_its_turn_calls_it_off(tmp_path: Path) -> None:
    home = empty_sessions(tmp_path)
    with (
        rounds(home, tmp_path, PRUNING) as running,
        ExitStack() as stack,
    ):
        with waiting_for_its_turn(running, home) as pruner:
            resumed = stack.enter_context(prunable_process(python_for(NEWEST), home))
            resumed.ask("old", session="20250101_000009_bbbbbb", count=1)
            running.run(60.0)
        wait_until(lambda: not pruner._busy, "the run is over")
    assert sessions(home) == len(EMPTY) + 1


def test_a_prune_that_waited_while_its_mode_was_changed_does_nothing(tmp_path: Path) -> None:
    home = empty_sessions(tmp_path)
    with rounds(home, tmp_path, PRUNING) as running:
        with waiting_for_its_turn(running, home) as pruner:
            running.settings = settings(tmp_path, PRUNING.replace("enforce", "observe"))
            running.run(60.0)
        wait_until(lambda: not pruner._busy, "the run is over")
    assert sessions(home) == len(EMPTY)
