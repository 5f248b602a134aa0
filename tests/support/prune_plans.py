"""Inventories of invented homes, and inventories read from real ones."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from exporter.config.prune import Prune
from exporter.evidence.models import ProcessFacts
from exporter.pruner.decide.inventory import Inventory, InventorySession, Safeguards, SessionFile
from exporter.pruner.decide.plan import EVERYTHING, plan_prune
from exporter.pruner.decide.protection import protect
from exporter.pruner.decide.thresholds import Pressure, assess, read_levels
from exporter.pruner.gather.inventory_reader import (
    InventoryReader,
    InventoryRequest,
    InventoryResult,
)
from exporter.pruner.models import Act, PruneMemory, PrunePlan
from exporter.runs.models import Filter
from exporter.scan.disk.scanner import DiskScanner
from exporter.snapshot import DiskKind, LockAnswer
from tests.real.hermes import Hermes

NOW = 1_790_000_000.0
DAY = 86400.0
SEEN = ProcessFacts(blind=(), lock_probe=LockAnswer.FREE)
"""Every process can be seen, and none has the database open."""
CALM = Safeguards(facts=SEEN)


def settings(**changes: Any) -> Prune:
    """Return the default settings, except that no session is kept for being new."""
    changes.setdefault("keep", Prune().keep.__class__(newest=0))
    return Prune(**changes)


def session(name: str, days: float = 100.0, **changes: Any) -> InventorySession:
    """Return an ended session that was last active this many days ago."""
    moment = NOW - days * DAY
    about: dict[str, Any] = {
        "source": "cli",
        "is_open": False,
        "ended_at": moment,
        "end_reason": "cli_close",
        "last_activity_at": moment,
        "clocks_sane": True,
        **changes,
    }
    rows = about.pop("rows", 20)
    about.setdefault("size", rows)
    about.setdefault("payload_bytes", 1000 * rows + 100)
    about.setdefault("expected", json.dumps({"rows": rows}).encode())
    return InventorySession(id=name, **about)


def file(name: str, days: float = 100.0, **changes: Any) -> SessionFile:
    """Return a transcript; its session is unknown unless it is given."""
    about: dict[str, Any] = {
        "kind": DiskKind.TRANSCRIPTS,
        "allocated_bytes": 4096,
        "modified_at": NOW - days * DAY,
        "session_id": None,
        "is_surely_hermes": True,
        "is_own": True,
        **changes,
    }
    return SessionFile(name=name, **about)


def inventory(*sessions: InventorySession, **changes: Any) -> Inventory:
    about: dict[str, Any] = {
        "safeguards": CALM,
        "payload_bytes": sum(each.payload_bytes for each in sessions),
        "transcripts_bytes": sum(each.allocated_bytes for each in changes.get("files", ())),
        "checkpoints_bytes": sum(each.allocated_bytes for each in changes.get("checkpoints", ())),
        **changes,
    }
    return Inventory(taken_at=NOW, sessions=sessions, **about)


def plan(
    found: Inventory,
    how: Prune | None = None,
    *,
    by_hand: bool = True,
    pressure: Pressure | None = None,
    filter_by: Filter = EVERYTHING,
) -> PrunePlan:
    how = how or settings()
    protection = protect(found, how, include_undone=filter_by.include_undone)
    return plan_prune(
        "home", found, protection, how, pressure=pressure, by_hand=by_hand, filter_by=filter_by
    )


def pressed(found: Inventory, how: Prune, memory: PruneMemory | None = None) -> Pressure:
    """Return the pressure of an inventory."""
    return assess(read_levels(found, how), how, memory or PruneMemory(), found.taken_at)[0]


def targets(found: PrunePlan, act: Act = Act.DELETE_SESSION) -> list[str]:
    return [action.target for action in found.actions if action.kind == act]


def kept(found: PrunePlan) -> dict[str, int]:
    """Return how many items each rule keeps."""
    return {each.rule: each.items for each in found.protected}


def read_inventory(
    home: Path,
    memory: PruneMemory | None = None,
    *,
    days_later: float = 0.0,
    facts: ProcessFacts = SEEN,
    inventory_reader: InventoryReader | None = None,
    **asked: Any,
) -> InventoryResult:
    """Read the inventory of a real home as a worker does, optionally some days from now."""
    inventory_reader = inventory_reader or InventoryReader(
        str(home), clock=lambda: time.time() + days_later * DAY
    )
    disk = DiskScanner(str(home))
    walked = disk.scan(excluded_profiles=frozenset(), now=time.time(), monotonic=time.monotonic())
    question = InventoryRequest(home.stat().st_uid, facts, memory=memory or PruneMemory(), **asked)
    return inventory_reader.read(question, disk, walked, before_open=lambda: None)


def inside(hermes: Hermes, home: Path, code: str) -> None:
    """Run code with the release's own SessionDB as `db`."""
    program = (
        "import time\nfrom hermes_state import SessionDB\n"
        "from tests.real.inside.clock import DAY, ago\n"
        f"db = SessionDB()\n{code}\ndb.close()\n"
    )
    subprocess.run(
        [str(hermes.python), "-c", program],
        env=hermes.environment(home),
        cwd=home.parent,
        check=True,
        capture_output=True,
    )
