"""A home that appears, disappears, moves or becomes unreadable shows at the next scan."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.agent.home_finder import HomeFinder
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.service import HostService
from exporter.agent.state_store import StateStore
from exporter.config.load import load
from exporter.config.settings import Settings
from exporter.snapshot import Trouble
from tests.real.agent import Metrics, agent
from tests.support.running_agent import (
    complaints,
    configuration,
    is_up,
    recoveries,
    scanned_again,
    when,
    when_down,
    when_up,
)
from tests.support.small_homes import small_home

ADA = 54321


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder where homes are found without being named: only root can write above it."""
    with tempfile.TemporaryDirectory(dir="/run", prefix="hermes-exporter-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_homes_and_profiles_come_and_go(folder: Path, tmp_path: Path) -> None:
    root = small_home(folder / ".hermes")
    environment = {"HOME": str(folder), "HERMES_HOME": ""}
    with agent(tmp_path, environment=environment) as running:
        assert is_up(running.metrics(), "default/work") is None
        # The home appears complete: a partial home would cause one more complaint.
        (root / "profiles" / "Not A Profile").mkdir(parents=True)
        small_home(folder / "made").rename(root / "profiles" / "work")
        metrics = when_up(running, "default/work")
        homes = [home for (home,) in metrics.by("hermes_home_up", "home")]
        assert [home for home in homes if home.startswith("default/")] == ["default/work"]
        (root / "profiles" / "work").rename(folder / "elsewhere")
        when_down(running, "default/work")
        scanned_again(running, "default")
        assert len(complaints(running, "default/work")) == 1
        (folder / "elsewhere").rename(root / "profiles" / "work")
        when_up(running, "default", "default/work")
        assert len(recoveries(running, "default/work")) == 1


def test_what_happens_to_a_home_shows_with_the_very_next_scan(folder: Path) -> None:
    """Each run of `rounds` is one scan of all homes; nothing waits for a second one."""
    journal = StateStore.in_memory()
    environment = {"HOME": str(folder), "HERMES_HOME": ""}
    rounds = ScanLoop(
        Settings(), journal, discovery=HomeFinder(journal, environment=environment), acting=False
    )
    home = folder / ".hermes"

    def next_scan() -> tuple[bool, Trouble] | None:
        found = (each for each in rounds.run(60).homes if each.path == str(home))
        return next(((each.up, each.trouble) for each in found), None)

    try:
        assert next_scan() is None
        small_home(home)
        for path in [home, *home.iterdir()]:
            os.chown(path, ADA, ADA)
        assert next_scan() == (True, Trouble.NONE), "it appears"
        (home / "state.db").chmod(0)
        assert next_scan() == (False, Trouble.PERMISSION), "its database becomes unreadable"
        (home / "state.db").chmod(0o600)
        assert next_scan() == (True, Trouble.NONE)
        home.chmod(0)
        assert next_scan() == (False, Trouble.PERMISSION), "all of it becomes unreadable"
        home.chmod(0o700)
        assert next_scan() == (True, Trouble.NONE)
        home.rename(folder / "elsewhere")
        assert next_scan() == (False, Trouble.HOME_GONE), "it disappears"
        (folder / "elsewhere").rename(home)
        assert next_scan() == (True, Trouble.NONE)
    finally:
        rounds.close()
        journal.close()


def test_no_home_at_all_is_no_failure(folder: Path, tmp_path: Path) -> None:
    """Other homes of this host may be found meanwhile, so this one is identified by its source."""
    environment = {"HOME": str(folder), "HERMES_HOME": ""}
    with agent(tmp_path, environment=environment) as running:
        small_home(folder / ".hermes", source="rare")

        def is_found(metrics: Metrics) -> bool:
            return any(dict(labels).get("source") == "rare" for _, labels in metrics)

        when(running, is_found, "the home is found")


def test_a_named_home_may_come_later(tmp_path: Path) -> None:
    homes = {"late": tmp_path / "late", "good": small_home(tmp_path / "good")}
    with agent(tmp_path, configuration=configuration(homes)) as running:
        assert is_up(running.metrics(), "late") is False
        small_home(homes["late"])
        when_up(running, "good", "late")


def test_a_home_without_a_database_is_up(tmp_path: Path) -> None:
    """Hermes has not run yet; that is not an error."""
    (tmp_path / "new").mkdir()
    with agent(tmp_path, configuration=configuration({"new": tmp_path / "new"})) as running:
        assert is_up(running.metrics(), "new")


def test_a_home_that_its_owner_closes(tmp_path: Path, folder: Path) -> None:
    homes = {name: small_home(folder / name) for name in ("good", "closed", "locked")}
    for name in ("closed", "locked"):
        for path in [homes[name], *homes[name].iterdir()]:
            os.chown(path, ADA, ADA)
    with agent(tmp_path, configuration=configuration(homes)) as running:
        when_up(running, *homes)
        homes["closed"].chmod(0)
        (homes["locked"] / "state.db").chmod(0)
        when_down(running, "closed", "locked")
        metrics = scanned_again(running, "good")
        assert is_up(metrics, "good")
        for name in ("closed", "locked"):
            (complaint,) = complaints(running, name)
            assert "reason=permission" in complaint
        homes["closed"].chmod(0o700)
        (homes["locked"] / "state.db").chmod(0o600)
        when_up(running, *homes)


def test_a_home_given_to_another_user_is_read_as_that_user(tmp_path: Path, folder: Path) -> None:
    homes = {name: small_home(folder / name) for name in ("good", "given")}
    with agent(tmp_path, configuration=configuration(homes)) as running:
        when_up(running, *homes)
        for path in [homes["given"], *homes["given"].iterdir()]:
            os.chown(path, ADA, ADA)
        metrics = scanned_again(running, "given")
        assert is_up(metrics, "given")
        assert metrics.value("hermes_messages_total", home="given", source="cli") == 6


def test_a_link_above_a_home_that_breaks_takes_no_second_name(tmp_path: Path) -> None:
    """One home has one name, whether its path resolves at the moment or not."""
    small_home(tmp_path / "real" / "home")
    (tmp_path / "link").symlink_to("real")
    homes = {"good": small_home(tmp_path / "good"), "linked": tmp_path / "link" / "home"}
    with agent(tmp_path, configuration=configuration(homes)) as running:
        when_up(running, *homes)
        (tmp_path / "link").unlink()
        metrics = when_down(running, "linked")
        assert metrics.by("hermes_home_up", "home") == {("good",): 1, ("linked",): 0}
        (tmp_path / "link").symlink_to("real")
        metrics = when_up(running, "linked")
        assert metrics.by("hermes_home_up", "home") == {("good",): 1, ("linked",): 1}


def test_entries_refine_what_is_found_and_a_closed_list_ends_the_search(
    folder: Path, tmp_path: Path
) -> None:
    """Each change of the settings shows with the next scan; what is left out is not `down`."""
    root = small_home(folder / ".hermes")
    for name in ("work", "scratch"):
        small_home(root / "profiles" / name)
    for path in [root, *root.rglob("*")]:
        os.chown(path, 65534, 65534)
    elsewhere = small_home(tmp_path / "elsewhere")
    journal = StateStore.in_memory()
    finder = HomeFinder(journal, environment={"HOME": str(folder), "HERMES_HOME": ""})
    rounds = ScanLoop(Settings(), journal, discovery=finder, acting=False)

    def next_scan(entries: str) -> dict[str, bool]:
        (tmp_path / "config.yml").write_text(entries)
        rounds.settings = load(str(tmp_path / "config.yml"))
        found = (each for each in rounds.run(60).homes if str(tmp_path.parent) in each.path)
        ours = [*found, *(each for each in rounds.run(60).homes if str(folder) in each.path)]
        assert all(each.up for each in ours)
        return {each.label: each.reaper_enforcing for each in ours}

    try:
        assert next_scan("") == {"nobody": False, "nobody/scratch": False, "nobody/work": False}
        named = f"{{path: {elsewhere}, name: mine, reaper: {{mode: enforce}}}}"
        left_out = f'{{path: "{folder}/.herm*/profiles/scr*", watch: false}}'
        assert next_scan(f"homes: [{named}, {left_out}]") == {
            "mine": True,
            "nobody": False,
            "nobody/work": False,
        }
        assert next_scan("homes: [{user: nobody, reaper: {mode: enforce}}]") == {
            "nobody": True,
            "nobody/scratch": True,
            "nobody/work": True,
        }, "a home that is named no more is not shown as down"
        assert list(rounds.census.unused) == []
        entries = '{user: nobodyy, watch: false}, {path: "/nowhere/*"}, {path: /nowhere/one}'
        assert "nobody" in next_scan(f"homes: [{entries}, {left_out}]")
        assert list(rounds.census.unused) == ["user: nobodyy", "path: /nowhere/*"]
        assert next_scan(f"discover: false\nhomes: [{named}]") == {"mine": True}
        assert next_scan(f'discover: false\nhomes: [{{path: "{folder}/*", profiles: false}}]') == {
            "nobody": False
        }
    finally:
        rounds.close()
        journal.close()


def test_a_home_of_root_is_acted_on_where_an_entry_selects_it_and_else_said_to_be_watched(
    folder: Path, tmp_path: Path
) -> None:
    """Hermes often runs as root: `mode: enforce` alone would do nothing there, and say nothing."""
    small_home(folder / ".hermes")
    journal = StateStore.in_memory()
    finder = HomeFinder(journal, environment={"HOME": str(folder), "HERMES_HOME": ""})
    rounds = ScanLoop(Settings(), journal, discovery=finder, acting=False)

    def next_scan(text: str) -> tuple[bool, list[str]]:
        (tmp_path / "config.yml").write_text(text)
        rounds.settings = load(str(tmp_path / "config.yml"))
        report = HostService(rounds, str(tmp_path / "state")).check()
        (entry,) = (each for each in report["homes"] if str(folder) in each["path"])
        (home,) = (each for each in rounds.run(60).homes if str(folder) in each.path)
        return home.reaper_enforcing, [each["grant"] for each in entry["cannot"]]

    enforce = "reaper: {mode: enforce}"
    try:
        assert next_scan("") == (False, [])
        assert next_scan(enforce) == (False, ["add an entry for it, e.g. homes: [{user: root}]"])
        assert next_scan(f"homes: [{{user: root}}]\n{enforce}") == (True, [])
        assert next_scan(f'homes: [{{path: "{folder}/.herm*"}}]\n{enforce}') == (True, [])
    finally:
        rounds.close()
        journal.close()
