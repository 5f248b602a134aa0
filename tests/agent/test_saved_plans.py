"""A plan that an earlier version has printed is still executed as it was narrowed."""

from __future__ import annotations

import json
from pathlib import Path

from exporter.agent.saved_plans import SavedItem, SavedPlan, load, save
from exporter.runs.models import Filter

HASH = "0123456789abcdef"
EARLIER = {
    "kind": "prune",
    "hash": HASH,
    "created_at": 1000.0,
    "expires_at": 2000.0,
    "items": [{"home": "/home/ada/.hermes", "target": "sessions/a.json", "digest": "ab"}],
    "narrowed": {
        "policies": ["orphan_files"],
        "older_than_seconds": 86400.0,
        "sources": ["cron"],
        "unproven": True,
    },
    "by_pressure": True,
}
"""As the version before one `Filter` wrote it."""
PLAN = SavedPlan(
    kind="prune",
    hash=HASH,
    created_at=1000.0,
    expires_at=2000.0,
    items=(SavedItem("/home/ada/.hermes", "sessions/a.json", "ab"),),
    filter_by=Filter(("orphan_files",), ("cron",), 86400.0, True),
    by_pressure=True,
)


def test_a_plan_of_an_earlier_version_is_read_with_all_that_it_was_narrowed_to(
    tmp_path: Path,
) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / f"plans/{HASH}.json").write_text(json.dumps(EARLIER))
    assert load(str(tmp_path), "prune", HASH, clock=lambda: 1500.0) == PLAN


def test_a_plan_is_stored_by_the_keys_of_before(tmp_path: Path) -> None:
    save(str(tmp_path), PLAN, clock=lambda: 1000.0)
    stored = json.loads((tmp_path / f"plans/{HASH}.json").read_text())
    assert stored["narrowed"].pop("include_undone") is False  # an earlier version ignores it
    assert stored == EARLIER
