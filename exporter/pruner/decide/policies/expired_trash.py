"""Trash older than `prune.trash.keep`, and the oldest trash while there is more than `max_bytes`.

Trash younger than `min_keep` stays: otherwise the next run would empty what a large one just took.
"""

from __future__ import annotations

from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.items import trash_item
from exporter.pruner.decide.policy import Policy
from exporter.text import format_size


def find(scope: Scope, policy: Policy) -> Finding:
    found = FindingBuilder(scope, policy.name)
    trash, now = scope.settings.trash, scope.now
    size = sum(run.allocated_bytes for run in scope.inventory.trash)
    for run in sorted(scope.inventory.trash, key=lambda each: (each.taken_at, each.run)):
        kept_by, reason = "", "it could be undone for long enough"
        if run.kept_until > now:
            is_young = now - run.taken_at < trash.min_keep_seconds
            kept_by = "trash" if size <= trash.max_bytes or is_young else ""
            reason = f"the trash is larger than {format_size(trash.max_bytes)}"
        if run.waiting_bytes and not run.purgeable_bytes:
            kept_by = "in_use"
        if not kept_by:
            size -= run.purgeable_bytes
        found.consider(
            trash_item(run),
            clock=run.taken_at,
            reason=reason,
            kept_by=kept_by,
            older_than_seconds=-1.0,
        )
    return found.finding()


# It lowers no threshold: those count the trash as reclaimed already.
POLICY = Policy(name="expired_trash", find=find)
