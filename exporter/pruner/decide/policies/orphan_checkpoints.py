"""Checkpoints of working directories that are gone, and what a killed git left behind.

Gone is what the agent once saw on this host, and what has been missing for long although the
filesystem that held it is there, for the processes that use the home too. A disk that is not
mounted, or a path of a container, tells nothing.
"""

from __future__ import annotations

from exporter.pruner.decide.candidates import Candidate, Finding, Scope, Tally
from exporter.pruner.decide.inventory import Workdir
from exporter.pruner.decide.policies.checkpoints import kept_by
from exporter.pruner.models import Policy


def find(scope: Scope) -> Finding:
    tally = Tally(scope)
    older_than = scope.age_of(scope.settings.policies.orphan_checkpoints)
    for leftover in scope.inventory.leftovers:
        found = Candidate(
            policy=Policy.ORPHAN_CHECKPOINTS,
            clock=leftover.modified_at,
            reason="git was killed and left it; {age} old",
            leftover=leftover,
            is_garbage=True,
        )
        tally.consider(found, older_than, "" if leftover.is_own else "not_own")
    for checkpoint in scope.inventory.checkpoints:
        if checkpoint.workdir is not Workdir.MISSING or checkpoint.missing_since is None:
            continue
        clock = max(checkpoint.missing_since, checkpoint.touched_at)
        found = Candidate(
            policy=Policy.ORPHAN_CHECKPOINTS,
            clock=clock,
            reason="its working directory is gone since {age} at least",
            checkpoint=checkpoint,
        )
        tally.consider(found, older_than, kept_by(checkpoint, scope))
    return tally.finding()
