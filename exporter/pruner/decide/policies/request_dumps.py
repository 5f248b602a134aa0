"""What was sent to a model when a call failed. Hermes never reads it again, whatever its session
is doing; only what somebody has asked to keep is kept with its dumps."""

from __future__ import annotations

from typing import Final

from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import SessionFile
from exporter.pruner.decide.items import ItemGroup, path_of, session_file_item
from exporter.pruner.models import Policy
from exporter.snapshot import DiskKind

_WISHES: Final = frozenset({"pinned", "archived", "kept_source", "titled", "restored"})


def find(scope: Scope) -> Finding:
    found = FindingBuilder(scope)
    older_than = scope.age_of(scope.settings.policies.request_dumps)
    for file in scope.inventory.files:
        if file.kind is not DiskKind.REQUEST_DUMPS:
            continue
        group = ItemGroup(
            Policy.REQUEST_DUMPS,
            file.modified_at,
            "a request dump, {age} old",
            (session_file_item(file),),
        )
        found.consider(group, older_than, _kept_by(file, scope))
    return found.finding()


def _kept_by(file: SessionFile, scope: Scope) -> str:
    if not file.is_own:
        return "not_own"
    if path_of(file) in scope.protection.restored:
        return "restored"
    rule = scope.protection.rules.get(file.session_id or "", "")
    return rule if rule in _WISHES else ""
