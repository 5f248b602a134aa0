"""Transcripts without a row: which of them a real Hermes deleted, and which may be last copies.

Each home is made, backed up, restored, upgraded and deleted from by real releases.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from exporter.config.prune import Keep, Prune, Threshold, Thresholds
from exporter.pruner.models import Act, PruneMemory, PrunePlan
from exporter.runs.models import Frees
from exporter.snapshot import Filesystem
from tests.real.hermes import NEWEST, python_for
from tests.support.prune_plans import inside, plan, pressed, read_inventory

OLD = [f"20260101_1200{number:02}_aaaaaa" for number in range(12)]
NEW = [f"20260102_1200{number:02}_bbbbbb" for number in range(2)]
LATER = "20260103_120000_cccccc"
TIGHT = Prune(
    keep=Keep(newest=0),
    thresholds=Thresholds(transcripts=Threshold(high=2.0, low=1.0, for_seconds=None)),
)


class Home:
    """A home of real releases, with the agent's memory of it."""

    def __init__(self, path: Path, version: str = NEWEST) -> None:
        self.path = path
        self.hermes = python_for(version)
        self.memory = PruneMemory()
        path.mkdir(mode=0o700)
        (path / "sessions").mkdir()

    def chat(self, *names: str) -> None:
        """Sessions of two messages each, with a transcript."""
        inside(
            self.hermes,
            self.path,
            f"for name in {names!r}:\n"
            "    db.create_session(name, 'cli')\n"
            "    db.append_message(name, 'user', 'hello')\n"
            "    db.append_message(name, 'assistant', 'hello')\n",
        )
        for name in names:
            self.transcript(name).write_text("{}")

    def transcript(self, name: str) -> Path:
        return self.path / "sessions" / f"session_{name}.json"

    def delete(self, *names: str) -> None:
        """As `hermes sessions delete` does, which leaves transcripts of this name."""
        inside(self.hermes, self.path, f"for name in {names!r}: db.delete_session(name)")

    def command(self, *arguments: str, version: str = NEWEST) -> None:
        python_for(version).call(self.path, *arguments)

    def back_up(self) -> Path:
        archive = self.path.parent / "backup.zip"
        self.command("backup", "--output", str(archive))
        return archive

    def look(self) -> None:
        """One look of the agent, which remembers what it saw."""
        self.memory = read_inventory(self.path, self.memory).memory

    def orphans(self, memory: PruneMemory | None = None) -> list[str]:
        """The sessions whose transcripts go three days later, by the policies alone."""
        known = self.memory if memory is None else memory
        return transcripts_in(plan(read_inventory(self.path, known, days_later=3).inventory, TIGHT))

    def under_pressure(self, memory: PruneMemory | None = None) -> PrunePlan:
        """What an automatic run takes when transcripts press and the disk is 99% full."""
        known = self.memory if memory is None else memory
        found = read_inventory(self.path, known, days_later=3).inventory
        full = structs.replace(found, filesystem=Filesystem(1000, 10, "ext4", 990))
        return plan(full, TIGHT, pressure=pressed(full, TIGHT), by_hand=False)


def transcripts_in(found: PrunePlan) -> list[str]:
    return sorted(
        Path(action.target).stem.removeprefix("session_")
        for action in found.actions
        if action.kind == Act.DELETE_FILE and action.policy == "orphan_files"
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Twelve sessions that the agent has seen."""
    made = Home(tmp_path / "home")
    made.chat(*OLD)
    made.look()
    return made


def test_a_session_that_the_agent_saw_go_leaves_an_orphan(home: Home) -> None:
    (home.path / "sessions" / "notes.json").write_text("a file of the user")
    home.delete(OLD[3])
    assert home.orphans() == [OLD[3]]
    home.look()
    assert home.orphans() == [OLD[3]]


def test_the_newest_session_may_be_deleted_beside_older_ones(home: Home) -> None:
    """Nothing newer shows that its row did not go with a restored database: its file stays."""
    home.delete(OLD[2], OLD[-1])
    assert home.orphans() == [OLD[2]]


def test_a_session_that_no_agent_ever_saw_leaves_a_last_copy(home: Home) -> None:
    home.delete(OLD[3])
    assert home.orphans(PruneMemory()) == []


def test_the_agent_need_not_run_while_hermes_deletes(home: Home) -> None:
    home.delete(OLD[4])
    home.chat(*NEW)
    assert home.orphans() == [OLD[4]]


def test_a_session_that_came_back_is_no_orphan_when_a_backup_takes_it_away_again(
    home: Home,
) -> None:
    home.delete(OLD[3])
    home.look()
    archive = home.back_up()
    home.chat(OLD[3])
    home.look()
    home.command("import", str(archive), "--force")
    assert home.orphans() == []


def test_links_and_files_with_other_names_are_left_alone(home: Home) -> None:
    home.delete(OLD[3])
    orphan, elsewhere = home.transcript(OLD[3]), home.path / "elsewhere.json"
    os.link(orphan, elsewhere)
    assert home.orphans() == []
    elsewhere.unlink()
    assert home.orphans() == [OLD[3]]
    orphan.unlink()
    orphan.symlink_to("/etc/passwd")
    assert home.orphans() == []


def test_a_folder_of_transcripts_that_is_a_link_has_none(home: Home) -> None:
    (home.path / "sessions").rename(home.path.parent / "elsewhere")
    (home.path / "sessions").symlink_to(home.path.parent / "elsewhere")
    found = read_inventory(home.path).inventory
    assert (found.files, found.transcripts_bytes) == ((), 0)


# Databases that were replaced, restored or rewritten


def import_backup(home: Home, archive: Path) -> None:
    before = os.stat(home.path / "state.db")
    home.command("import", str(archive), "--force")
    after = os.stat(home.path / "state.db")
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino), "not in place any more"


@pytest.mark.parametrize("overtaken", [False, True], ids=["as imported", "written to since"])
@pytest.mark.parametrize("seen", [False, True], ids=["new agent", "agent that saw them"])
def test_what_hermes_import_takes_from_the_database_stays_on_disk(
    home: Home, seen: bool, overtaken: bool
) -> None:
    archive = home.back_up()
    home.chat(*NEW)
    home.look()
    memory = home.memory if seen else PruneMemory()
    import_backup(home, archive)
    if overtaken:  # as many messages as before, or more
        home.chat(*(f"20260104_1200{number:02}_dddddd" for number in range(4)))
    assert home.orphans(memory) == []
    pressing = home.under_pressure(memory)
    assert transcripts_in(pressing) == []
    assert not any(action.frees is Frees.NOW for action in pressing.actions)


def test_the_same_session_written_to_again_after_an_import_is_another_one(home: Home) -> None:
    """Numbers of messages come again, of the same session too: their times tell them apart."""
    archive = home.back_up()
    more = f"for word in 'abcdef': db.append_message({OLD[-1]!r}, 'user', word)"
    inside(home.hermes, home.path, more)
    home.chat(*NEW)
    home.look()
    import_backup(home, archive)
    inside(home.hermes, home.path, f"{more}\n{more}")
    assert home.orphans() == []


def _replace_by_copy(home: Home, copy: Path) -> None:
    for side in home.path.glob("state.db*"):
        side.unlink()
    shutil.copy(copy, home.path / "state.db")


def _copy_in_place(home: Home, copy: Path) -> None:
    for side in home.path.glob("state.db-*"):
        side.unlink()
    (home.path / "state.db").write_bytes(copy.read_bytes())


@pytest.mark.parametrize("put", [_replace_by_copy, _copy_in_place])
def test_an_older_copy_put_in_its_place_makes_no_orphan(
    home: Home, put: Callable[[Home, Path], None]
) -> None:
    copy = home.path.parent / "copy.db"
    shutil.copy(home.path / "state.db", copy)
    home.chat(*NEW)
    home.look()
    put(home, copy)
    assert home.orphans() == []
    home.look()
    home.chat(LATER, *(f"20260104_1200{number:02}_dddddd" for number in range(4)))
    assert home.orphans() == []


def test_a_restored_snapshot_makes_no_orphan(home: Home) -> None:
    inside(
        home.hermes,
        home.path,
        "from pathlib import Path\n"
        "from hermes_cli.backup import create_quick_snapshot\n"
        "Path('snapshot').write_text(create_quick_snapshot())",
    )
    name = (home.path.parent / "snapshot").read_text()
    home.chat(*NEW)
    home.look()
    inside(
        home.hermes,
        home.path,
        "from hermes_cli.backup import restore_quick_snapshot\n"
        f"db.close()\nassert restore_quick_snapshot({name!r})\ndb = SessionDB()",
    )
    assert home.orphans() == []


def test_a_database_that_was_deleted_and_made_anew_makes_no_orphan(home: Home) -> None:
    for side in home.path.glob("state.db*"):
        side.unlink()
    home.chat(*NEW)
    assert home.orphans() == []
    home.look()
    home.chat(*(f"20260104_1200{number:02}_dddddd" for number in range(20)))
    home.look()
    assert home.orphans() == []


def test_a_repair_makes_no_orphan(home: Home) -> None:
    """Which rows a repair could not save is not told: only the copy that it puts aside is seen."""
    inside(
        home.hermes,
        home.path,
        "from hermes_state import _backup_db_file\nassert _backup_db_file(db.db_path)\n"
        f"db.delete_session({OLD[3]!r})",
    )
    assert home.orphans() == []


def test_an_upgrade_in_place_makes_no_orphan_and_forgets_none(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", "0.13.0")
    home.chat(*OLD)
    home.look()
    home.delete(OLD[0])
    home.look()
    assert home.orphans() == [OLD[0]]
    home.hermes = python_for(NEWEST)
    home.chat(*NEW)
    home.look()
    assert home.orphans() == [OLD[0]]
    home.delete(OLD[1])
    assert home.orphans() == [OLD[0], OLD[1]]
