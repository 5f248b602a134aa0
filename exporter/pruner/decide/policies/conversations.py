"""What the policies on sessions have in common: conversations go whole, with their delegates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from exporter.config.prune import Policies
from exporter.config.prune import Policy as PolicySettings
from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import StockedSession
from exporter.pruner.decide.items import Item, ItemGroup, session_file_item, session_item
from exporter.pruner.models import Policy, ThresholdName

Fits = Callable[[Sequence[StockedSession], Scope], bool]
"""Whether a policy is for these sessions, whatever their age."""
Of = Callable[[Policies], PolicySettings]


def find_sessions(
    scope: Scope,
    policy: Policy,
    fits: Fits,
    of: Of,
    what: str,
    lowers: tuple[ThresholdName, ...] = (ThresholdName.STATE_DB,),
) -> Finding:
    """The ended conversations that a policy is for."""
    found = FindingBuilder(scope)
    deferred = not scope.by_hand and scope.inventory.self_pruning.has_sessions(scope.now)
    for conversation in scope.lineages.conversations():
        if any(session.is_open for session in conversation) or not fits(conversation, scope):
            continue
        members = scope.lineages.with_delegates(conversation)
        policies = [of(scope.policies_for(session)) for session in members]
        if any(each.off for each in policies):
            continue
        clock = max([session.last_activity_at for session in members])
        older_than = max([scope.age_of(each) for each in policies])
        group = ItemGroup(policy, clock, what + ", idle for {age}", _items(members, scope, lowers))
        kept_by = "hermes_prunes" if deferred else ""
        if len(members) > len(conversation) and not fits(members, scope):
            kept_by = "delegates"
        found.consider(group, older_than, _rule(members, scope) or kept_by)
    return found.finding()


def _rule(members: Sequence[StockedSession], scope: Scope) -> str:
    rules = scope.protection.rules
    return next((rules[each.id] for each in reversed(members) if each.id in rules), "")


def _items(
    members: Sequence[StockedSession], scope: Scope, lowers: tuple[ThresholdName, ...]
) -> tuple[Item, ...]:
    sessions = tuple(session_item(each, lowers) for each in members)
    if not scope.files_of:
        return sessions
    files = (file for each in members for file in scope.files_of.get(each.id, ()))
    return (*sessions, *(session_file_item(file, after_session=True) for file in files))


def max_messages(session: StockedSession, scope: Scope) -> int:
    """How large a session of this source may be and still be trivial."""
    return scope.policies_for(session).trivial_sessions.max_messages or 0
