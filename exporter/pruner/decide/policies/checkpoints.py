"""What the policies on checkpoints have in common."""

from __future__ import annotations

from typing import Final

from exporter.config.prune import ThresholdName
from exporter.pruner.decide.findings import Scope
from exporter.pruner.decide.inventory import Checkpoint

LOWERS: Final = (ThresholdName.CHECKPOINTS, ThresholdName.DISK_USED)


def kept_by(checkpoint: Checkpoint, scope: Scope) -> str:
    """Return the rule that protects a checkpoint of any age; '' if there is none."""
    if not checkpoint.is_own:
        return "not_own"
    if checkpoint.target in scope.protection.restored:
        return "restored"
    if not scope.by_hand and scope.inventory.self_pruning.has_checkpoints(scope.now):
        return "hermes_prunes"
    return ""
