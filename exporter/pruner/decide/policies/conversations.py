"""What the policies on sessions have in common: conversations go whole, with their delegates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from exporter.config.prune import ThresholdName
from exporter.hermes.prunable_names import is_session_file
from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import InventorySession
from exporter.pruner.decide.items import Item, session_file_item, session_item
from exporter.pruner.decide.policy import Policy

Matches = Callable[[Sequence[InventorySession], Scope], bool]
"""True if a policy covers these sessions, of any age."""


def session_policy(
    name: str,
    fits: Matches,
    what: str,
    *also_lowers: ThresholdName,
    spares_last_copies: bool = False,
) -> Policy:
    """Return a policy on the ended conversations that match, and their files.

    `spares_last_copies`: it goes by how little is in the database, so sessions stay whose
    transcript may have more.
    """

    def find(scope: Scope, policy: Policy) -> Finding:
        return _find(scope, policy, fits, what, spares_last_copies=spares_last_copies)

    lowers = (
        ThresholdName.TRANSCRIPTS,
        ThresholdName.STATE_DB_PAYLOAD,
        ThresholdName.DISK_USED,
        *also_lowers,
    )
    return Policy(name=name, find=find, lowers=lowers, names=is_session_file)


def _find(
    scope: Scope, policy: Policy, fits: Matches, what: str, *, spares_last_copies: bool
) -> Finding:
    found = FindingBuilder(scope, policy.name)
    # Only files lower these two: a deleted row gives no block back before a VACUUM. So a full
    # filesystem asks for old sessions that have files, and not for those without.
    of_files = (ThresholdName.TRANSCRIPTS, ThresholdName.DISK_USED)
    lowers = tuple(each for each in policy.lowers if each not in of_files)
    deferred = not scope.by_hand and scope.inventory.self_pruning.has_sessions(scope.now)
    for conversation in scope.lineages.conversations():
        if any(session.is_open for session in conversation) or not fits(conversation, scope):
            continue
        members = scope.lineages.with_delegates(conversation)
        terms = [scope.policies_for(session).named(policy.name) for session in members]
        if any(each.off for each in terms):
            continue
        kept_by = "hermes_prunes" if deferred else ""
        if len(members) > len(conversation) and not fits(members, scope):
            kept_by = "delegates"
        if spares_last_copies and _has_last_copy(members, scope):
            kept_by = "last_copy"
        found.consider(
            *_items(members, scope, lowers),
            clock=max([session.last_activity_at for session in members]),
            reason=what + ", idle for {age}",
            kept_by=_rule(members, scope) or kept_by,
            older_than_seconds=max([scope.age_of(each) for each in terms]),
        )
    return found.finding()


def _has_last_copy(members: Sequence[InventorySession], scope: Scope) -> bool:
    return any(file.holds_more for each in members for file in scope.files_of.get(each.id, ()))


def _rule(members: Sequence[InventorySession], scope: Scope) -> str:
    rules = scope.protection.rules
    return next((rules[each.id] for each in reversed(members) if each.id in rules), "")


def _items(
    members: Sequence[InventorySession], scope: Scope, lowers: tuple[ThresholdName, ...]
) -> tuple[Item, ...]:
    sessions = tuple(session_item(each, lowers) for each in members)
    if not scope.files_of:
        return sessions
    files = (file for each in members for file in scope.files_of.get(each.id, ()))
    return (*sessions, *(session_file_item(file, after_session=True) for file in files))


def max_messages(session: InventorySession, scope: Scope) -> int:
    """Return how many messages a trivial session of this source may have."""
    return scope.policies_for(session).trivial_sessions.max_messages or 0
