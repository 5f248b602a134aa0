"""Checkpoints of working directories that are gone, and what a killed git left behind.

Gone is what the agent once saw on this host, and what has been missing for long although the
filesystem that held it is there, for the processes that use the home too. A disk that is not
mounted, or a path of a container, tells nothing.
"""

from __future__ import annotations

from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import Workdir
from exporter.pruner.decide.items import ItemGroup, checkpoint_item, leftover_item
from exporter.pruner.decide.policies.checkpoints import kept_by
from exporter.pruner.models import Policy


def find(scope: Scope) -> Finding:
    found = FindingBuilder(scope)
    older_than = scope.age_of(scope.settings.policies.orphan_checkpoints)
    for leftover in scope.inventory.leftovers:
        group = ItemGroup(
            Policy.ORPHAN_CHECKPOINTS,
            leftover.modified_at,
            "git was killed and left it; {age} old",
            (leftover_item(leftover),),
        )
        found.consider(group, older_than, "" if leftover.is_own else "not_own")
    for checkpoint in scope.inventory.checkpoints:
        if checkpoint.workdir is not Workdir.MISSING or checkpoint.missing_since is None:
            continue
        clock = max(checkpoint.missing_since, checkpoint.touched_at)
        group = ItemGroup(
            Policy.ORPHAN_CHECKPOINTS,
            clock,
            "its working directory is gone since {age} at least",
            (checkpoint_item(checkpoint),),
        )
        found.consider(group, older_than, kept_by(checkpoint, scope))
    return found.finding()
