"""A person imports a backup while a run takes or gives back files, and then starts Hermes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.evidence.openers import KnownOpeners
from exporter.pruner.apply import execute as execution
from exporter.pruner.apply import undo as undoing
from exporter.runs.models import RunOutcome
from tests.real.hermes import NEWEST, Hermes, python_for
from tests.support.home_scans import sql
from tests.support.pruned_home import make_home, plan_all
from tests.support.reaping import hermes_process, leaky_home, target_of
from tests.support.session_pruning import KEEP_SECONDS

SEEN = KnownOpeners(locks_seen=True)
NEW = "20260202_080000_bbbbbb"
IMPORTED = [f"20260101_08{number:04}_aaaaaa" for number in range(40)]


@pytest.fixture
def hermes() -> Hermes:
    return python_for(NEWEST)


@pytest.fixture
def home(tmp_path: Path, hermes: Hermes) -> Path:
    return make_home(hermes, tmp_path / "home", 60)


@pytest.fixture
def backup(tmp_path: Path, hermes: Hermes) -> Path:
    archive = tmp_path / "backup.zip"
    hermes.call(leaky_home(hermes, tmp_path / "other", IMPORTED), "backup", "-o", archive)
    return archive


@pytest.mark.parametrize("undone", [False, True], ids=["prune", "undo"])
def test_all_of_the_import_stays(
    home: Path, hermes: Hermes, backup: Path, undone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run leaves in the WAL is written over a file that is put in place of state.db."""
    module: Any = undoing if undone else execution
    name = "restore" if undone else "take"
    real, files = getattr(module, name), []

    def first_import(*arguments: Any) -> Any:
        files.append(arguments)
        if len(files) == 3:
            hermes.call(home, "import", backup, "--force")
            with hermes_process(hermes, home) as process:
                process.ask("leak", session=NEW)
        return real(*arguments)

    plan = plan_all(home)
    if undone:
        run = execution.execute(plan, target_of(home, SEEN), keep_seconds=KEEP_SECONDS).run or ""
    monkeypatch.setattr(module, name, first_import)
    if undone:
        done = undoing.undo(run, target_of(home, SEEN))
    else:
        done = execution.execute(plan, target_of(home, SEEN), keep_seconds=KEEP_SECONDS)
    assert len(files) == 60
    assert done.outcome is (RunOutcome.PARTIAL if undone else RunOutcome.DONE)
    assert sql(home, "PRAGMA integrity_check") == "ok"
    assert sessions_of(home) == [*IMPORTED, NEW]


@pytest.mark.parametrize("starts_hermes", [False, True], ids=["import", "then Hermes"])
def test_what_an_import_has_replaced_can_be_given_back_again(
    home: Path, hermes: Hermes, backup: Path, starts_hermes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sessions_of(home)
    run = execution.execute(plan_all(home), target_of(home, SEEN), keep_seconds=KEEP_SECONDS).run
    assert run
    assert not sessions_of(home)
    module: Any = undoing
    real, files = module.restore, []

    def first_import(*arguments: Any) -> Any:
        files.append(arguments)
        if len(files) == 3:
            hermes.call(home, "import", backup, "--force")
            if starts_hermes:
                with hermes_process(hermes, home) as process:
                    process.ask("leak", session=NEW)
        return real(*arguments)

    monkeypatch.setattr(module, "restore", first_import)
    undoing.undo(run, target_of(home, SEEN))
    assert undoing.undo(run, target_of(home, SEEN)).outcome is RunOutcome.DONE
    there = [*IMPORTED, NEW] if starts_hermes else IMPORTED
    assert sessions_of(home) == sorted([*before, *there])


def test_what_hermes_writes_while_the_files_come_back_leaves_the_undo_complete(
    home: Path, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sessions_of(home)
    run = execution.execute(plan_all(home), target_of(home, SEEN), keep_seconds=KEEP_SECONDS).run
    module: Any = undoing
    real, files = module.restore, []

    def first_start(*arguments: Any) -> Any:
        files.append(arguments)
        if len(files) == 3:
            with hermes_process(hermes, home) as process:
                process.ask("leak", session=NEW)
        return real(*arguments)

    monkeypatch.setattr(module, "restore", first_start)
    assert undoing.undo(run or "", target_of(home, SEEN)).outcome is RunOutcome.DONE
    assert sessions_of(home) == sorted([*before, NEW])


def sessions_of(home: Path) -> list[str]:
    return sql(home, "SELECT id FROM sessions ORDER BY id").split()
