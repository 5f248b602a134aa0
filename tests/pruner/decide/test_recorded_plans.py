"""Plans, hashes and figures stay what earlier versions made of the same homes.

`recorded_plans.json` was written by the code from before policies yielded items. A plan that a
person has printed is executed by its hash, and a journal is undone by what its run expected, so
neither may change. `python -m tests.pruner.decide.test_recorded_plans` writes the file anew, for a
change that is meant.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from exporter.config.prune import Caps, Keep, Prune, Threshold, Thresholds, Trash
from exporter.hermes.checkpoints import CheckpointLayout
from exporter.hermes.own_pruning import OwnPruning
from exporter.pruner.decide.inventory import (
    Archive,
    Checkpoint,
    Deletion,
    HomeFile,
    Inventory,
    InventorySession,
    ParentLink,
    Safeguards,
    SessionFile,
    TrashedRun,
    WorkdirState,
)
from exporter.pruner.decide.report import report
from exporter.pruner.decide.thresholds import relief_of
from exporter.pruner.expected import ExpectedFolder, ExpectedProject
from exporter.pruner.models import PrunePlan
from exporter.runs.models import Filter
from exporter.snapshot import DiskKind, Filesystem, Hold
from tests.support.prune_plans import DAY, NOW, SEEN, file, inventory, plan, pressed, session

RECORDED = Path(__file__).with_name("recorded_plans.json")
HOMES = 60
POLICIES = (
    *("expired_trash", "request_dumps", "orphan_files", "orphan_checkpoints", "stale_checkpoints"),
    *("empty_sessions", "trivial_sessions", "old_sessions"),
)
"""Of that version; what newer ones find comes on top."""
UNDONE_TOO = Filter(include_undone=True)
"""By hand, earlier versions took what an undo had given back."""
OLD_COPIES = Filter(("orphan_files",), unproven=True, include_undone=True)
CRON = Filter(sources=("cron",), older_than_seconds=DAY, include_undone=True)


class Chance:
    """Choices that are the same in every version of Python."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, most: int) -> int:
        """From 0 to `most`."""
        return int(self._random.random() * (most + 1))

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self.number(len(choices) - 1)]

    def rarely(self) -> bool:
        return self.number(11) == 0


def make_sessions(chance: Chance) -> tuple[InventorySession, ...]:
    names = [f"s{number:02}" for number in range(chance.number(25))]
    return tuple(_session(chance, name, names[:number]) for number, name in enumerate(names))


def _session(chance: Chance, name: str, others: Sequence[str]) -> InventorySession:
    parent = chance.one_of([None, None, None, chance.one_of([None, *others])])
    rows = chance.one_of([0, 0, 3, 5, 6, 40])
    expected = {"ended_at": NOW - 7.5 * DAY, "rows": rows, "parent": parent, "titled": 0}
    return session(
        name,
        chance.one_of([0.1, 2, 10, 100, 200]),
        rows=rows,
        source=chance.one_of(["cli", "cron", "telegram"]),
        is_open=chance.rarely(),
        pinned=chance.rarely(),
        archived=chance.rarely(),
        clocks_sane=not chance.rarely(),
        parent_id=parent,
        link=chance.one_of(list(ParentLink)) if parent else ParentLink.NONE,
        expected=json.dumps(expected).encode(),
    )


def make_files(chance: Chance, sessions: Sequence[InventorySession]) -> tuple[SessionFile, ...]:
    owners = [None, None, *(each.id for each in sessions)]
    return tuple(
        file(
            f"{chance.one_of(['session', 'request_dump'])}_{number:03}.json",
            chance.one_of([0.5, 2, 8, 100]),
            kind=chance.one_of([DiskKind.TRANSCRIPTS, DiskKind.REQUEST_DUMPS]),
            session_id=chance.one_of(owners),
            deletion=chance.one_of(list(Deletion)),
            is_own=not chance.rarely(),
            is_surely_hermes=not chance.rarely(),
            allocated_bytes=4096 * chance.number(9),
            inode=number + 7,
            size=chance.number(9000),
            mtime_ns=chance.number(10**9),
        )
        for number in range(chance.number(25))
    )


def make_checkpoints(chance: Chance) -> tuple[Checkpoint, ...]:
    found = []
    for number in range(chance.number(10)):
        layout = chance.one_of([CheckpointLayout.LEGACY, CheckpointLayout.STORE, Archive.ARCHIVE])
        names = {
            CheckpointLayout.STORE: f"{number:016x}",
            Archive.ARCHIVE: f"checkpoints/legacy-{number}",
        }
        found.append(
            Checkpoint(
                layout=layout,
                target=names.get(layout, f"checkpoints/{number:016x}"),
                allocated_bytes=10_000 * chance.number(9),
                touched_at=chance.one_of([0.0, NOW - DAY / 2, NOW - 3 * DAY, NOW - 30 * DAY]),
                workdir=chance.one_of(list(WorkdirState)),
                missing_since=chance.one_of([None, NOW - DAY / 2, NOW - 9 * DAY]),
                is_own=not chance.rarely(),
                expected=_state(layout, number, chance.number(10**9)),
            )
        )
    return tuple(found)


def _state(
    layout: CheckpointLayout | Archive, inode: int, moment: int
) -> ExpectedFolder | ExpectedProject:
    if layout is not CheckpointLayout.STORE:
        return ExpectedFolder(inode, moment)
    return ExpectedProject(inode, moment, inode + 1, moment + 1, None, None)


def make_home(seed: int) -> Inventory:
    """Some of everything that a home can hold."""
    chance = Chance(seed)
    sessions = make_sessions(chance)
    names = [each.id for each in sessions] or ["nothing"]
    guards = Safeguards(
        SEEN,
        holds={chance.one_of(names): [Hold.ROUTED]},
        reaped_at={chance.one_of(names): NOW - DAY},
        restored=frozenset({chance.one_of(names), "sessions/session_003.json"}),
    )
    leftovers = tuple(
        HomeFile(
            f"checkpoints/store/objects/pack/tmp_pack_{number}",
            4096 * chance.number(9),
            NOW - chance.one_of([0.5, 2, 9]) * DAY,
            not chance.rarely(),
            number,
            chance.number(9000),
            chance.number(10**9),
        )
        for number in range(chance.number(4))
    )
    trash = tuple(
        TrashedRun(f"run{days}", 4096 * chance.number(99), NOW - days * DAY, NOW + (3 - days) * DAY)
        for days in range(1, chance.number(4) + 1)
    )
    used = 900_000 + 13_000 * chance.number(7)
    hermes_prunes = OwnPruning(sessions_on=True, sessions_at=NOW - 3600, checkpoints_at=NOW - 3600)
    return inventory(
        *sessions,
        files=make_files(chance, sessions),
        checkpoints=make_checkpoints(chance),
        leftovers=leftovers,
        trash=trash,
        safeguards=guards,
        self_pruning=hermes_prunes if chance.rarely() else OwnPruning(),
        awaiting_gc_bytes=10_000 * chance.number(3),
        filesystem=Filesystem(1_000_000, 1_000_000 - used, "ext4", used),
    )


def make_settings(seed: int) -> Prune:
    """Thresholds that press or do not, caps that hold or do not."""
    chance = Chance(seed + 1000)
    low = 1000 * (1 + chance.number(60))
    size = Threshold(low + 1000, low)
    return Prune(
        keep=Keep(newest=chance.number(3), archived=not chance.rarely()),
        caps=Caps(items=chance.one_of([10, 1000]), share=chance.one_of([0.3, 1.0])),
        thresholds=Thresholds(
            transcripts=size,
            checkpoints=size,
            state_db_payload=size,
            disk_used=Threshold(0.91, 0.85, None),
            empty_sessions=Threshold(2, 1),
        ),
        trash=Trash(
            min_keep_seconds=DAY / 24 if chance.rarely() else 9 * DAY,
            max_bytes=chance.one_of([200_000, 10**9]),
        ),
    )


def told(seed: int) -> dict[str, Any]:
    """All that is planned for and said of one home."""
    home, how = make_home(seed), make_settings(seed)
    pressure = pressed(home, how)
    made = {
        "by_hand": plan(home, how, filter_by=UNDONE_TOO),
        "by_hand_under_pressure": plan(home, how, pressure=pressure, filter_by=UNDONE_TOO),
        "automatic": plan(home, how, pressure=pressure, by_hand=False),
        "last_copies": plan(home, how, filter_by=OLD_COPIES),
        "of_cron": plan(home, how, filter_by=CRON),
    }
    figures, _ = report(home, how, pressure)
    figures = structs.replace(
        figures, policies=[each for each in figures.policies if each.policy in POLICIES]
    )
    in_report = msgspec.to_builtins(figures)
    # Not there earlier:
    del in_report["could_items"], in_report["could_bytes"]
    for policy in in_report["policies"]:
        del policy["items"]
    for threshold in in_report["thresholds"]:
        del threshold["over_since"], threshold["acts_at"]
    all_of_it = {
        **{name: _shown(each) for name, each in made.items()},
        "relief": relief_of(made["by_hand_under_pressure"].actions, pressure),
        "report": {
            **in_report,
            # Earlier versions had these two sums in the report, and no code read them.
            "by_hand_items": sum(each.eligible for each in figures.policies),
            "by_hand_bytes": sum(each.reclaimable_bytes for each in figures.policies),
        },
    }
    return _with_earlier_names(all_of_it)


def _with_earlier_names(made: dict[str, Any]) -> dict[str, Any]:
    """The threshold `state_db_payload` was called `state_db`; nothing else may differ."""
    text = msgspec.json.encode(made).replace(b'"state_db_payload"', b'"state_db"')
    found: dict[str, Any] = msgspec.json.decode(text)
    return found


def _shown(made: PrunePlan) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    for action in found["actions"]:
        # Earlier versions worked `lowers` out from the rest, and had these for reaps alone.
        del action["lowers"], action["evidence"], action["proof"], action["since"]
        action["action"] = action.pop("kind")
    del found["deferred"], found["needed_bytes"]
    return found


def recorded(seed: int) -> dict[str, Any]:
    """The hashes of its plans, and a digest of all else."""
    found = told(seed)
    content = json.dumps(found, sort_keys=True).encode()
    hashes = [found[name]["hash"] for name in ("by_hand", "by_hand_under_pressure", "automatic")]
    return {"hashes": hashes, "digest": sha256(content).hexdigest()}


@pytest.mark.parametrize("seed", range(HOMES))
def test_plans_and_figures_are_those_of_earlier_versions(seed: int) -> None:
    assert recorded(seed) == json.loads(RECORDED.read_text())["homes"][seed]


def test_the_plan_of_one_home_is_word_for_word_that_of_earlier_versions() -> None:
    assert told(_SHOWN) == json.loads(RECORDED.read_text())["shown"]


_SHOWN = 2

if __name__ == "__main__":
    homes = [recorded(seed) for seed in range(HOMES)]
    RECORDED.write_text(json.dumps({"shown": told(_SHOWN), "homes": homes}, indent=1) + "\n")
