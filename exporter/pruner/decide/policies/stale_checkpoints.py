"""Checkpoints that nobody has added to for long, and archives of the old layout."""

from __future__ import annotations

from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import Archive
from exporter.pruner.decide.items import ItemGroup, checkpoint_item
from exporter.pruner.decide.policies.checkpoints import kept_by
from exporter.pruner.models import Policy


def find(scope: Scope) -> Finding:
    found = FindingBuilder(scope)
    older_than = scope.age_of(scope.settings.policies.stale_checkpoints)
    for checkpoint in scope.inventory.checkpoints:
        if checkpoint.touched_at <= 0:
            continue  # nothing tells how old it is
        archived = checkpoint.layout is Archive.ARCHIVE
        group = ItemGroup(
            Policy.STALE_CHECKPOINTS,
            checkpoint.touched_at,
            "an archive of the old layout, {age} old" if archived else "unused for {age}",
            (checkpoint_item(checkpoint),),
        )
        found.consider(group, older_than, kept_by(checkpoint, scope))
    return found.finding()
