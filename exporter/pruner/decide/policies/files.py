"""What policies with files of their own (`Policy.gather`) have in common."""

from __future__ import annotations

from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import HomeFile
from exporter.pruner.decide.items import file_item
from exporter.pruner.decide.policy import Find, Policy


def find_files(reason: str) -> Find:
    """Find the files of a policy by their age alone; `reason` may say `{age}`."""

    def find(scope: Scope, policy: Policy) -> Finding:
        found = FindingBuilder(scope, policy.name)
        for file in scope.inventory.gathered.get(policy.name, ()):
            found.consider(
                file_item(file, policy.lowers),
                clock=file.modified_at,
                reason=reason,
                kept_by=kept_by(file, scope),
            )
        return found.finding()

    return find


def kept_by(file: HomeFile, scope: Scope) -> str:
    """The rule that keeps a file, whatever its age."""
    if not file.is_own:
        return "not_own"
    return "restored" if file.path in scope.protection.restored else ""
