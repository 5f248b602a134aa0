"""What was sent to a model when a call failed. Hermes never reads it again, whatever its session
is doing; only what somebody has asked to keep is kept with its dumps."""

from __future__ import annotations

from typing import Final

from exporter.pruner.decide.candidates import Candidate, Finding, Scope, Tally
from exporter.pruner.decide.inventory import SessionFile
from exporter.pruner.decide.policies.files import path_of
from exporter.pruner.models import Policy
from exporter.snapshot import DiskKind

_WISHES: Final = frozenset({"pinned", "archived", "kept_source", "titled", "restored"})


def find(scope: Scope) -> Finding:
    tally = Tally(scope)
    older_than = scope.age_of(scope.settings.policies.request_dumps)
    for file in scope.inventory.files:
        if file.kind is not DiskKind.REQUEST_DUMPS:
            continue
        found = Candidate(
            policy=Policy.REQUEST_DUMPS,
            clock=file.modified_at,
            reason="a request dump, {age} old",
            files=(file,),
        )
        tally.consider(found, older_than, _kept_by(file, scope))
    return tally.finding()


def _kept_by(file: SessionFile, scope: Scope) -> str:
    if not file.is_own:
        return "not_own"
    if path_of(file) in scope.protection.restored:
        return "restored"
    rule = scope.protection.rules.get(file.session_id or "", "")
    return rule if rule in _WISHES else ""
