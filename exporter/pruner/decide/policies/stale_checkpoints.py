"""Checkpoints that nobody has added to for long, and archives of the old layout."""

from __future__ import annotations

from exporter.pruner.decide.candidates import Candidate, Finding, Scope, Tally
from exporter.pruner.decide.inventory import Archive
from exporter.pruner.decide.policies.checkpoints import kept_by
from exporter.pruner.models import Policy


def find(scope: Scope) -> Finding:
    tally = Tally(scope)
    older_than = scope.age_of(scope.settings.policies.stale_checkpoints)
    for checkpoint in scope.inventory.checkpoints:
        if checkpoint.touched_at <= 0:
            continue  # nothing tells how old it is
        archived = checkpoint.layout is Archive.ARCHIVE
        found = Candidate(
            policy=Policy.STALE_CHECKPOINTS,
            clock=checkpoint.touched_at,
            reason="an archive of the old layout, {age} old" if archived else "unused for {age}",
            checkpoint=checkpoint,
        )
        tally.consider(found, older_than, kept_by(checkpoint, scope))
    return tally.finding()
