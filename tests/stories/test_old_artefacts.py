"""What the first version of the run journal has left behind is read, undone and counted on.

See `tests/fixtures/version_1/README.md` for what there is. Everything is asked of the commands and
the agent as users run them.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.real.agent import Labels, Metrics, agent
from tests.real.command import refusal, run, run_json
from tests.support.home_picture import OURS, Change, Picture, change, changed, picture
from tests.support.running_agent import when

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "version_1" / "artefacts.tar.gz"
WRITTEN_IN = "/tmp/version-1"
SETTINGS = """\
scan: {interval: 300ms}
reaper: {interval: 300ms}
prune: {interval: 300ms, keep: {newest: 1}, trash: {keep: 36500d}}
"""
DAY_SECONDS = 86400
LABELS = ("ada", "bob")
"""The first home was pruned and reaped, in the second a prune was killed."""


@dataclass(frozen=True)
class Unpacked:
    """The artefacts in a folder of their own, and what their writer knew of them."""

    folder: Path
    facts: dict[str, Any]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def killed(self) -> Path:
        return self.folder / "killed"

    @property
    def where(self) -> tuple[str | Path, ...]:
        return (*self.options, "--home", self.home, "--home", self.killed)

    @property
    def options(self) -> tuple[str | Path, ...]:
        file = self.folder / "config.yml"
        file.write_text(SETTINGS)
        return ("--state-dir", self.folder / "state", "--config.file", file)

    def id_of(self, name: str) -> str:
        """The run of that name."""
        return str(self.facts["runs"][name])

    def gives_back(self, name: str) -> Change:
        """What an undo of that run must lead to."""
        changes = json.loads((self.folder / "gives_back.json").read_text())
        found: Change = {**changes["home"], **changes["killed"]}[self.id_of(name)]
        return found

    def journal(self, query: str, home: Path | None = None) -> list[tuple[Any, ...]]:
        """What the run journal says, by another library."""
        file = (home or self.home) / OURS / "journal.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            return connection.execute(query).fetchall()

    def trash(self, run_id: str) -> Path:
        return self.home / OURS / "backups" / "trash" / run_id

    def old_metrics(self) -> Metrics:
        return metrics_of((self.folder / "metrics.prom").read_text())


@pytest.fixture
def old(tmp_path: Path) -> Unpacked:
    subprocess.run(
        ["tar", "-xpzf", ARCHIVE, "--no-same-owner", "-C", tmp_path], check=True, timeout=120
    )
    facts = json.loads((tmp_path / "facts.json").read_text())
    move(tmp_path, facts["written_at"])
    return Unpacked(tmp_path, facts)


def move(folder: Path, written_at: float) -> None:
    """Put in where the homes are now, and let the days go on from today.

    The agent forgets after 90 days what it has counted of a session that is gone; all that is old
    here must not become older by the age of the archive.
    """
    days = int(time.time() // DAY_SECONDS) - int(written_at // DAY_SECONDS)
    with closing(sqlite3.connect(folder / "state" / "agent.db")) as connection, connection:
        moved = "UPDATE homes SET path = replace(path, ?, ?), seen = seen + ?"
        connection.execute(moved, (WRITTEN_IN, str(folder), days))
        connection.execute("UPDATE session_counted SET seen = seen + ?", (days,))
    for plan in (folder / "state" / "plans").iterdir():
        plan.write_text(plan.read_text().replace(f"{WRITTEN_IN}/", f"{folder}/"))


def differences(home: Path, expected: Picture) -> Change:
    """What is expected where a home is not as expected."""
    return change(expected, picture(home))


def metrics_of(exposition: str) -> Metrics:
    return Metrics(
        ((sample.name, frozenset(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    )


# History


def test_every_run_is_listed_as_it_was_with_the_labels_of_the_homes(old: Unpacked) -> None:
    known = old.facts["history"]
    kinds = Counter(row["kind"] for row in known)
    assert kinds == {"prune": 10, "reap": 3, "undo": 2, "heal": 1, "purge": 1}
    assert {row["home"] for row in known} == set(LABELS)
    listed = run_json("history", *old.where)
    gone = [{**row, "outcome": row["outcome"] or "interrupted"} for row in known]  # not under way
    assert [{key: row[key] for key in known[0]} for row in listed] == gone


def test_a_run_is_shown_with_everything_that_it_took(old: Unpacked) -> None:
    keys = ("action", "policy", "target", "reason", "bytes", "state", "why")
    for name in ("reap_by_itself", "old_sessions", "stale_checkpoints", "killed"):
        home = old.killed if name == "killed" else old.home
        query = f"SELECT {', '.join(keys)} FROM actions WHERE run = '{old.id_of(name)}'"
        noted = old.journal(query, home)
        assert noted
        (shown,) = run_json("history", old.id_of(name), *old.where)
        assert [tuple(each[key] or "" for key in keys) for each in shown["items"]] == [
            tuple(value or "" for value in row) for row in noted
        ]
    printed = run("history", old.id_of("killed"), *old.where).stdout
    assert all(row[2] in printed for row in noted)


def test_to_look_at_it_changes_nothing(old: Unpacked) -> None:
    homes = (old.home, old.killed)
    before = [picture(home) for home in homes]
    journals = [(home / OURS / "journal.db").read_bytes() for home in homes]
    for command in ("history", "status", "sessions", "prune", "reap"):
        run_json(command, *old.where)
    with agent(old.folder, homes, configuration=SETTINGS) as running:
        running.next_scan()
    assert [differences(home, was) for home, was in zip(homes, before, strict=True)] == [{}, {}]
    assert [(home / OURS / "journal.db").read_bytes() for home in homes] == journals


# Undo and purge

TAKEN_FROM_HOME = (
    *("reap", "orphan_files", "orphan_checkpoints", "stale_checkpoints", "empty_sessions"),
    *("trivial_sessions", "old_sessions", "request_dumps", "reap_by_itself"),
)
"""In the order in which it was done."""
HEALED = "20260101_080000_cccccc"


@pytest.mark.parametrize("order", [-1, 1], ids=["newest first", "oldest first"])
def test_each_run_is_undone_exactly(order: int, old: Unpacked) -> None:
    """Rows, search, files with their modes and times, refs and objects; and nothing else."""
    expected = picture(old.home)
    for name in TAKEN_FROM_HOME[::order]:
        taken = "SELECT COUNT(*) FROM actions WHERE state = 'done' AND run = '{}'"
        ((count,),) = old.journal(taken.format(old.id_of(name)))
        done = run("undo", old.id_of(name), "--json", *old.options, "--home", old.home)
        told = json.loads(done.stdout)
        assert (told["run"], told["restored"]) == (old.id_of(name), count)
        failed = [HEALED] if name == "reap_by_itself" else []
        assert [each["target"] for each in told["failed"]] == failed
        assert done.returncode == (3 if failed else 0), done.stderr
        expected = changed(expected, old.gives_back(name))
        assert differences(old.home, expected) == {}, name
    listed = run_json("history", *old.where)
    assert {row["undoable_until"] for row in listed if row["home"] == "ada"} == {None}


def test_a_run_that_was_killed_is_settled_and_given_back(old: Unpacked) -> None:
    before = picture(old.killed)
    undone = run_json("undo", old.id_of("killed"), *old.options, "--home", old.killed)
    assert undone == {"run": old.id_of("killed"), "restored": 3, "failed": []}
    assert differences(old.killed, changed(before, old.gives_back("killed"))) == {}
    outcomes = {row["run"]: row["outcome"] for row in run_json("history", *old.where)}
    assert outcomes[old.id_of("killed")] == "partial"


def test_what_cannot_be_given_back_any_more_is_refused(old: Unpacked) -> None:
    before = picture(old.home)
    for undone in old.facts["undone"]:
        done = run("undo", undone, *old.options, "--home", old.home)
        assert done.returncode == 1
        assert "it was given back already" in done.stdout
    purged = run("undo", old.facts["purged"], *old.options, "--home", old.home)
    assert purged.returncode == 1
    assert f"the trash of run {old.facts['purged']} is gone" in purged.stdout
    assert differences(old.home, before) == {}


def test_an_old_run_is_purged_and_no_other(old: Unpacked) -> None:
    before = picture(old.home)
    gone, other = old.id_of("old_sessions"), old.id_of("trivial_sessions")
    assert old.trash(gone).is_dir()
    assert run_json("purge", gone, "--yes", *old.where)["done"] == 1
    assert not old.trash(gone).exists()
    assert run("undo", gone, *old.where).returncode == 1
    assert differences(old.home, before) == {}
    assert run_json("undo", other, *old.where)["restored"] == 3
    assert differences(old.home, changed(before, old.gives_back("trivial_sessions"))) == {}
    assert run_json("purge", "--yes", *old.where)["outcome"] == "done"
    assert list(old.trash(gone).parent.iterdir()) == []


# Plans that were only shown


@pytest.mark.parametrize("kind", ["reap", "prune"])
def test_a_plan_that_was_shown_is_done_exactly(kind: str, old: Unpacked) -> None:
    plan = old.facts["plans"][kind]
    assert len(plan["targets"]) == 2
    before = picture(old.home)
    done = run_json(kind, "--plan", plan["hash"], "--yes", *old.where)
    assert (done["outcome"], done["done"], done["skipped"]) == ("done", 2, [])
    assert sorted(each["target"] for each in done["plan"]["actions"]) == plan["targets"]
    assert differences(old.home, before) != {}
    assert run_json("undo", done["run"], *old.where)["restored"] == 2
    assert differences(old.home, before) == {}


def test_a_plan_that_has_expired_is_refused_in_one_line(old: Unpacked) -> None:
    plan = old.facts["plans"]["expired"]["hash"]
    before = picture(old.home)
    assert refusal("prune", "--plan", plan, "--yes", *old.where) == (
        1,
        f"hermes-exporter: plan {plan} has expired; run `prune` to make a new one",
    )
    assert differences(old.home, before) == {}


# The agent


def counters(metrics: Metrics) -> dict[tuple[str, Labels], float]:
    """The counters of homes; reaps and mistakes without their proof, which is newer."""
    found: dict[tuple[str, Labels], float] = {}
    for (name, labels), value in metrics.items():
        if name.endswith("_total") and "home" in dict(labels):
            key = name, frozenset(each for each in labels if each[0] != "proof")
            found[key] = found.get(key, 0.0) + value
    return found


def grown(metrics: Metrics, old: Unpacked, *homes: str) -> dict[tuple[str, str], float]:
    """By how much the counters of these homes differ from the old agent's; none may be missing."""
    now, then = counters(metrics), counters(old.old_metrics())
    return {
        (name, dict(labels)["home"]): now[name, labels] - value
        for (name, labels), value in then.items()
        if dict(labels)["home"] in homes and now[name, labels] != value
    }


def test_counters_go_on_where_they_were_and_never_fall(old: Unpacked) -> None:
    known = counters(old.old_metrics())
    assert len(known) > 50
    with agent(old.folder, [old.home, old.killed], configuration=SETTINGS) as running:
        metrics = running.next_scan()
        assert {home for (home,) in metrics.by("hermes_home_up", "home")} == set(LABELS)
        assert grown(metrics, old, *LABELS) == {}
        for name in ("old_sessions", "empty_sessions"):
            run_json("undo", old.id_of(name), *old.options, "--home", old.home)
        assert grown(running.next_scan(), old, *LABELS) == {}
        say(old.home, "cron_nightly_20260101_080000")
        when(
            running,
            lambda now: grown(now, old, *LABELS) == {("hermes_messages_total", "ada"): 1},
            "one more message is counted",
        )
    with agent(old.folder, [old.home, old.killed], configuration=SETTINGS) as again:
        assert grown(again.next_scan(), old, *LABELS) == {("hermes_messages_total", "ada"): 1}


def test_without_the_old_state_the_labels_and_counters_would_be_others(old: Unpacked) -> None:
    """So it is the old state that the others of these tests see."""
    file = old.folder / "new.prom"
    where = ("--home", old.home, "--home", old.killed, "--state-dir", old.folder / "new-state")
    assert run("textfile", file, *where).returncode == 0
    found = metrics_of(file.read_text())
    assert not {home for (home,) in found.by("hermes_home_up", "home")} & set(LABELS)
    messages = sum(found.by("hermes_messages_total", "home", "source").values())
    known = sum(old.old_metrics().by("hermes_messages_total", "home", "source").values())
    assert 0 < messages < known


def say(home: Path, session: str) -> None:
    sql = (
        "INSERT INTO messages (session_id, role, content, timestamp) "
        f"VALUES ('{session}', 'user', 'are you there?', {time.time()})"
    )
    subprocess.run(["sqlite3", str(home / "state.db"), sql], check=True, timeout=60)


def test_what_the_pruner_remembers_is_kept(old: Unpacked) -> None:
    def memory() -> dict[str, Any]:
        query = "SELECT prune_memory FROM homes WHERE label = 'ada'"
        with closing(sqlite3.connect(old.folder / "state" / "agent.db")) as connection:
            ((text,),) = connection.execute(query)
        found: dict[str, Any] = json.loads(text)
        return found

    before = memory()
    assert before["last_run_at"] > 0
    with agent(old.folder, [old.home], configuration=SETTINGS) as running:
        when(
            running,
            lambda now: bool(now.by("hermes_prune_threshold_value", "threshold", home="ada")),
            "the thresholds were looked at",
        )
        running.next_scan()
    after = memory()
    assert after.keys() != before.keys(), "the new agent has not written it"
    assert after["last_run_at"] == before["last_run_at"]
    earlier = before["thresholds"]
    earlier["state_db_payload"] = earlier.pop("state_db")  # it has another name now
    kept = {
        name: {key: after["thresholds"][name][key] for key in values}  # newer ones may be beside
        for name, values in earlier.items()
    }
    assert kept == earlier


def test_reaping_that_was_stopped_by_a_mistake_waits_for_a_person(old: Unpacked) -> None:
    settings = SETTINGS.replace("reaper: {", "reaper: {mode: enforce, ")
    dead = {"home": "ada", "source": "cron", "verdict": "dead"}
    with agent(old.folder, [old.home], configuration=settings) as running:
        when(
            running,
            lambda now: now.value("hermes_sessions_open_by_verdict", **dead) == 2,
            "two are dead",
        )
        for _ in range(3):
            metrics = running.next_scan()
        assert metrics.value("hermes_reaper_breaker_open", home="ada") == 1
        assert grown(metrics, old, "ada") == {}
        run_json("reap", "--yes", "--source", "cron", *old.options, "--home", old.home)
        # By that very run, or by the agent: a reap by hand lets it go on before it has begun.
        metrics = when(running, lambda now: reaped(now, "cron") == 2, "both are reaped")
        assert metrics.value("hermes_reaper_breaker_open", home="ada") == 0


def reaped(metrics: Metrics, source: str) -> float:
    return sum(
        metrics.by("hermes_reaper_reaped_total", "proof", home="ada", source=source).values()
    )
