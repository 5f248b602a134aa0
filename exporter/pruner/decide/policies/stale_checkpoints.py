"""Checkpoints that Hermes has not added to for long, and archives of the old layout."""

from __future__ import annotations

from exporter.hermes.prunable_names import is_prunable_repo
from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import Archive
from exporter.pruner.decide.items import checkpoint_item
from exporter.pruner.decide.policies.checkpoints import LOWERS, kept_by
from exporter.pruner.decide.policy import Policy


def find(scope: Scope, policy: Policy) -> Finding:
    found = FindingBuilder(scope, policy.name)
    for checkpoint in scope.inventory.checkpoints:
        if checkpoint.touched_at <= 0:
            continue  # its age is not known
        archived = checkpoint.layout is Archive.ARCHIVE
        found.consider(
            checkpoint_item(checkpoint),
            clock=checkpoint.touched_at,
            reason="an archive of the old layout, {age} old" if archived else "unused for {age}",
            kept_by=kept_by(checkpoint, scope),
        )
    return found.finding()


POLICY = Policy(name="stale_checkpoints", find=find, lowers=LOWERS, names=is_prunable_repo)
