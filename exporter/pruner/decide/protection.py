"""What no policy may take; decided before any policy looks for items.

Only ended sessions can be pruned. This module says which of them may not be. If a source of
protection cannot be read, nothing in the home is pruned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from typing import Final

from msgspec import Struct

from exporter.config.prune import Prune
from exporter.evidence.blind_spots import blind_in_words
from exporter.evidence.models import Liveness
from exporter.pruner.decide.inventory import Inventory, InventorySession, ParentLink, Safeguards
from exporter.pruner.decide.lineage import Lineages
from exporter.reaper.possible_hosts import UNSEEN, HostClass, hosts_of, required_idle_seconds
from exporter.snapshot import Hold, LockAnswer

_ID_CHARACTERS: Final = 512
"""Longer ids are cut when they are read, so two of them could become the same."""


class Protection(Struct, frozen=True):
    """What must stay, and why."""

    blocked: str = ""
    """Why nothing at all may be pruned, as a label value."""
    why: str = ""
    rules: Mapping[str, str] = {}
    """The rule that protects a session, by its id. Every open session has one."""
    restored: frozenset[str] = frozenset()
    """Other targets that automatic runs leave alone, because an undo restored them."""


def protect(
    inventory: Inventory,
    settings: Prune,
    *,
    include_undone: bool = False,
    lineages: Lineages | None = None,
) -> Protection:
    """Return what no policy may take from this home now."""
    guards = inventory.safeguards
    blocked, why = _blindness(guards)
    rules: dict[str, str] = {}
    beside = _IdleBesideProcesses(guards)
    newest = _newest(inventory.sessions, settings.keep.newest)
    leased = _leased(guards)
    for session in inventory.sessions:
        rule = _rule(session, inventory, settings, beside)
        if not rule:
            if session.id in newest:
                rule = "newest"
            elif session.id in leased:
                rule = "leased"
            elif not include_undone and session.id in guards.restored:
                rule = "restored"
        if rule:
            rules[session.id] = rule
    _keep_relatives(rules, inventory.sessions, lineages or Lineages(inventory.sessions))
    restored = frozenset() if include_undone else guards.restored
    return Protection(blocked, why, rules, restored)


class _IdleBesideProcesses:
    """How long a session must be idle beside the processes that have the database open.

    "Ended" does not mean idle: a chat may go on with a session that another process ended. When
    the agent first saw an ended session is not known, so no start time clears a process.
    """

    def __init__(self, guards: Safeguards) -> None:
        facts, rules = guards.facts, guards.rules
        self._named = {mapped.id for holder in facts.holders for mapped in holder.sessions}
        hosts = hosts_of(facts.holders, plugins=facts.plugins)
        line = hosts.class_for(UNSEEN)
        self._needed_seconds = (
            None if line is HostClass.CLEARED else required_idle_seconds(line, rules)
        )
        off = line is not HostClass.CLEARED and self._needed_seconds is None
        # A chat may continue a session that it has in memory, and then needs its row. Without the
        # column `archived` a row cannot be hidden, so the session stays.
        rowless = not guards.can_hide_rows and line not in (HostClass.CLEARED, HostClass.SERVER)
        # Time beside a stopped process is no idleness.
        self._never = off or rowless or bool(hosts.stopped)

    def may_be_used(self, session: InventorySession, now: float) -> bool:
        if self._never or session.id in self._named:
            return True
        needed = self._needed_seconds
        return needed is not None and now - session.last_activity_at < needed


def _blindness(guards: Safeguards) -> tuple[str, str]:
    facts = guards.facts
    reasons = (*guards.unreadable, *facts.blind)
    if reasons:
        return reasons[0], f"what protects sessions cannot be seen: {blind_in_words(reasons)}"
    if facts.lock_probe is LockAnswer.HELD_UNSEEN:
        return "pid_namespace", "a process that cannot be seen holds a lock on the database"
    if facts.clock_stepped:
        return "clock", "the clock was set by hours since this boot: ages cannot be trusted"
    return "", ""


def _rule(
    session: InventorySession, inventory: Inventory, settings: Prune, beside: _IdleBesideProcesses
) -> str:
    """Return the first rule that protects the session itself; '' if there is none."""
    keep, guards, now = settings.keep, inventory.safeguards, inventory.taken_at
    if session.is_open:
        return "open"
    if not session.clocks_sane or session.last_activity_at > now:
        return "clocks"
    if not session.id or len(session.id) >= _ID_CHARACTERS:
        return "unfit_id"
    if session.emptied:
        return "emptied"
    if session.pinned:
        return "pinned"
    if session.archived and keep.archived:
        return "archived"
    if session.source in keep.sources:
        return "kept_source"
    if session.titled and keep.titled:
        return "titled"
    if session.handed_off or session.id in guards.turn_leases:
        return "held"
    holds = guards.holds.get(session.id, ())
    if Hold.ROUTED in holds or Hold.TOPIC_BOUND in holds:
        return "routed"
    if holds:
        return "held"
    reaped_at = guards.reaped_at.get(session.id)
    if reaped_at is not None and now - reaped_at < settings.trash.keep_seconds:
        return "reaped"
    return "possible_host" if beside.may_be_used(session, now) else ""


def _newest(sessions: Iterable[InventorySession], count: int) -> frozenset[str]:
    """Return the newest ended sessions: people return to those."""
    ended = (session for session in sessions if not session.is_open)
    newest = nlargest(count, ended, key=lambda each: (each.last_activity_at, each.id))
    return frozenset(session.id for session in newest)


def _leased(guards: Safeguards) -> frozenset[str]:
    """Return sessions that are leased by a process that is alive, or may be."""
    return frozenset(
        lease.session_id for lease in guards.facts.leases if lease.liveness is not Liveness.DEAD
    )


def _keep_relatives(
    rules: dict[str, str], sessions: Iterable[InventorySession], lineages: Lineages
) -> None:
    """Protect the relatives of protected sessions.

    A conversation goes whole or not at all, and a session only with its delegates. Ancestors and
    descendants of an open session stay.
    """
    everyone = list(sessions)
    for session in _below_open(everyone, lineages):
        rules.setdefault(session.id, "open_parent")
    todo = [session for session in everyone if session.id in rules]

    def keep(session: InventorySession, rule: str) -> None:
        if session.id not in rules:
            rules[session.id] = rule
            todo.append(session)

    while todo:
        session = todo.pop()
        for relative in lineages.conversation(session):
            keep(relative, "lineage")
        parent = lineages.parent(session)
        if parent is not None and session.link is ParentLink.DELEGATE:
            keep(parent, "delegates")
        if parent is not None and session.is_open:
            keep(parent, "open_child")


def _below_open(
    sessions: Iterable[InventorySession], lineages: Lineages
) -> Iterator[InventorySession]:
    """Yield all descendants of open sessions, also behind protected ones."""
    seen: set[str] = set()
    todo = [session for session in sessions if session.is_open]
    while todo:
        for child in lineages.children(todo.pop()):
            if child.id not in seen:
                seen.add(child.id)
                todo.append(child)
                yield child
