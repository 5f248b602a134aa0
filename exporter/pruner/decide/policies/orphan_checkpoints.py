"""Checkpoints of working directories that are gone, and what a killed git left behind.

A working directory is gone if the agent once saw it on this host, and it has been missing for long
although its filesystem is mounted, also for the processes that use the home. A path on a disk that
is not mounted, or in a container, proves nothing.
"""

from __future__ import annotations

from exporter.hermes.prunable_names import is_prunable_repo, is_temporary_object
from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import WorkdirState
from exporter.pruner.decide.items import checkpoint_item, file_item
from exporter.pruner.decide.policies.checkpoints import LOWERS, kept_by
from exporter.pruner.decide.policy import Policy


def find(scope: Scope, policy: Policy) -> Finding:
    found = FindingBuilder(scope, policy.name)
    for leftover in scope.inventory.leftovers:
        found.consider(
            file_item(leftover, LOWERS, is_garbage=True),
            clock=leftover.modified_at,
            reason="git was killed and left it; {age} old",
            kept_by="" if leftover.is_own else "not_own",
        )
    for checkpoint in scope.inventory.checkpoints:
        if checkpoint.workdir is WorkdirState.MISSING and checkpoint.missing_since is not None:
            found.consider(
                checkpoint_item(checkpoint),
                clock=max(checkpoint.missing_since, checkpoint.touched_at),
                reason="its working directory is gone since {age} at least",
                kept_by=kept_by(checkpoint, scope),
            )
    return found.finding()


def _names(path: bytes) -> bool:
    return is_prunable_repo(path) or is_temporary_object(path)


POLICY = Policy(name="orphan_checkpoints", find=find, lowers=LOWERS, names=_names)
