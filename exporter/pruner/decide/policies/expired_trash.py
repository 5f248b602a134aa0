"""What earlier runs took and nobody wanted back in time, and the oldest of a trash too large."""

from __future__ import annotations

from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import TrashedRun
from exporter.pruner.decide.items import ItemGroup, trash_item
from exporter.pruner.models import Policy
from exporter.text import format_size


def find(scope: Scope) -> Finding:
    found = FindingBuilder(scope)
    trash, now = scope.settings.trash, scope.now
    size = sum(run.allocated_bytes for run in scope.inventory.trash)
    for run in sorted(scope.inventory.trash, key=lambda each: (each.taken_at, each.run)):
        kept_by, why = "", "it could be undone for long enough"
        if run.kept_until > now:
            kept_by = "trash" if size <= trash.max_bytes else ""
            why = f"the trash is larger than {format_size(trash.max_bytes)}"
        if not kept_by:
            size -= run.allocated_bytes
        found.consider(trash_group(run, why), older_than_seconds=-1.0, kept_by=kept_by)
    return found.finding()


def trash_group(run: TrashedRun, why: str) -> ItemGroup:
    return ItemGroup(Policy.EXPIRED_TRASH, run.taken_at, why, (trash_item(run),))
