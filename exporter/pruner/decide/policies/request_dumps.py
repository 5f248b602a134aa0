"""What was sent to a model when a call failed.

Hermes never reads a dump again, whatever its session is doing. Those of a session that a person
asked to keep are kept with it.
"""

from __future__ import annotations

from typing import Final

from exporter.config.prune import ThresholdName
from exporter.hermes.prunable_names import is_request_dump
from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import SessionFile
from exporter.pruner.decide.items import session_file_item
from exporter.pruner.decide.policy import Policy
from exporter.snapshot import DiskKind

_ASKED_TO_KEEP: Final = frozenset({"pinned", "archived", "kept_source", "titled", "restored"})


def find(scope: Scope, policy: Policy) -> Finding:
    found = FindingBuilder(scope, policy.name)
    for file in scope.inventory.files:
        if file.kind is DiskKind.REQUEST_DUMPS:
            found.consider(
                session_file_item(file),
                clock=file.modified_at,
                reason="a request dump, {age} old",
                kept_by=_kept_by(file, scope),
            )
    return found.finding()


def _kept_by(file: SessionFile, scope: Scope) -> str:
    kept = scope.keeps_file(file)
    if kept:
        return kept
    rule = scope.protection.rules.get(file.session_id or "", "")
    return rule if rule in _ASKED_TO_KEEP else ""


POLICY = Policy(
    name="request_dumps",
    find=find,
    lowers=(ThresholdName.TRANSCRIPTS, ThresholdName.DISK_USED),
    names=is_request_dump,
)
