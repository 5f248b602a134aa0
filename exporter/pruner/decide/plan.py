"""What a prune would do: a pure function of an inventory, so that a dry run is the plan printed.

By hand everything goes that the policies allow. Under pressure only so much goes, in order of harm,
that the low marks are reached. What the trash holds longer than it has to goes in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct, structs

from exporter.config.prune import Prune
from exporter.hermes.checkpoints import CheckpointLayout
from exporter.pruner.decide.candidates import Candidate, Finding, Scope, oldest_first
from exporter.pruner.decide.inventory import Deletion, Inventory, SessionFile
from exporter.pruner.decide.lineage import Lineages
from exporter.pruner.decide.policies import POLICIES
from exporter.pruner.decide.policies.files import path_of
from exporter.pruner.decide.protection import Protection
from exporter.pruner.decide.selection import select, unreachable
from exporter.pruner.decide.thresholds import Pressure, insisted_on
from exporter.pruner.models import (
    Act,
    Frees,
    HomePrunePlan,
    Policy,
    ProtectedCount,
    PruneAction,
)
from exporter.text import format_age, format_count, format_percent, format_size

FEW: Final = 5
"""So few things are never too large a share of a store: of three, two are most of it."""
_HASH_DIGITS: Final = 16


class Filters(Struct, frozen=True):
    """What a person has narrowed a plan to."""

    policies: frozenset[Policy] = frozenset()
    older_than_seconds: float | None = None
    sources: frozenset[str] = frozenset()
    unproven: bool = False
    """Files without a row whose deletion was not seen, too: they may be last copies."""


EVERYTHING: Final = Filters()


def plan_prune(
    home: str,
    inventory: Inventory,
    protection: Protection,
    settings: Prune,
    *,
    pressure: Pressure | None = None,
    by_hand: bool = False,
    filters: Filters = EVERYTHING,
    findings: Mapping[Policy, Finding] | None = None,
) -> HomePrunePlan:
    """Plan what to take from one home.

    Without a pressure all that the policies allow is planned; with one, what its thresholds demand,
    if by hand without grace or pause.
    An automatic plan above the caps is empty; one by hand says so and leaves it to the person.
    `findings` are what `find_all` would find, where somebody knows them already.
    """
    now = inventory.taken_at
    if protection.blocked:
        return HomePrunePlan(
            home=home, created_at=now, blocked=protection.blocked, why=protection.why[:300]
        )
    if findings is None:
        findings = find_all(inventory, protection, settings, by_hand=by_hand, filters=filters)
    if by_hand and pressure is not None:
        pressure = insisted_on(pressure)
    chosen = choose(findings, inventory, settings, pressure)
    emergency = pressure is not None and pressure.emergency
    actions = tuple(_actions(chosen, now, emergency=emergency))
    over = _over_caps(chosen, len(actions), inventory, settings)
    blocked, why = _blocked(findings, actions)
    if over and not by_hand:
        blocked, why, actions = "caps", over[0], ()
    return HomePrunePlan(
        home=home,
        hash=_hash(home, actions),
        created_at=now,
        actions=actions,
        protected=tuple(
            ProtectedCount(rule, items)
            for rule, items in sorted(_kept(findings, protection).items())
        ),
        unreachable=unreachable(findings, chosen if actions else (), inventory, pressure),
        blocked=blocked,
        why=why[:300],
        warnings=tuple(
            warning[:300] for warning in (*_last_copies(chosen), *over, *_warnings(findings))
        )
        if by_hand
        else (),
    )


def find_all(
    inventory: Inventory,
    protection: Protection,
    settings: Prune,
    *,
    by_hand: bool,
    filters: Filters = EVERYTHING,
    lineages: Lineages | None = None,
) -> dict[Policy, Finding]:
    """What each policy may take; what two may take is found by the safer one alone."""
    scope = Scope(
        inventory=inventory,
        protection=protection,
        settings=settings,
        lineages=lineages or Lineages(inventory.sessions),
        files_of=_files_by_session(inventory.files, protection),
        by_source={},
        by_hand=by_hand,
        older_than_seconds=filters.older_than_seconds,
        unproven=filters.unproven,
    )
    sources = _sources(inventory) if filters.sources else {}
    wanted = [policy for policy in POLICIES if not filters.policies or policy in filters.policies]
    findings = {
        policy: Finding(()) if settings.is_off(policy.value) else POLICIES[policy](scope)
        for policy in wanted
    }
    left = _once(
        [
            each
            for finding in findings.values()
            for each in finding.candidates
            if _is_wanted(each, filters, sources)
        ]
    )
    return {
        policy: structs.replace(finding, candidates=oldest_first(left.get(policy, ())))
        for policy, finding in findings.items()
    }


def _files_by_session(
    files: Iterable[SessionFile], protection: Protection
) -> dict[str, list[SessionFile]]:
    found: dict[str, list[SessionFile]] = {}
    for file in sorted(files, key=lambda each: each.name):
        if file.session_id is not None and file.is_own and path_of(file) not in protection.restored:
            found.setdefault(file.session_id, []).append(file)
    return found


def _sources(inventory: Inventory) -> dict[str, str]:
    return {session.id: session.source for session in inventory.sessions}


def _is_wanted(candidate: Candidate, filters: Filters, sources: Mapping[str, str]) -> bool:
    """Whether it is of the sources that were asked for; what is of no session is of none."""
    if not filters.sources:
        return True
    if candidate.sessions:
        return all(session.source in filters.sources for session in candidate.sessions)
    return bool(candidate.files) and all(
        sources.get(file.session_id or "") in filters.sources for file in candidate.files
    )


def _once(candidates: Iterable[Candidate]) -> dict[Policy, list[Candidate]]:
    """Each thing once, with the safest policy that takes it; delegates with their parent alone."""
    order = {policy: number for number, policy in enumerate(POLICIES)}
    taken: set[str] = set()
    left: dict[Policy, list[Candidate]] = {}
    # Of families the largest first: what a safer policy would take of one goes with the rest.
    for each in sorted(candidates, key=lambda each: (-len(each.sessions), order[each.policy])):
        keys = _keys(each)
        if not taken.isdisjoint(keys):
            continue
        taken.update(keys)
        left.setdefault(each.policy, []).append(each)
    apart = {
        file.name
        for found in left.values()
        for each in found
        if not each.sessions
        for file in each.files
    }
    return {
        policy: [_without_files(each, apart) for each in found] for policy, found in left.items()
    }


def _without_files(candidate: Candidate, apart: Collection[str]) -> Candidate:
    """A session without those of its files that go by themselves."""
    if not candidate.sessions or all(file.name not in apart for file in candidate.files):
        return candidate
    files = tuple(file for file in candidate.files if file.name not in apart)
    return structs.replace(candidate, files=files)


def choose(
    findings: Mapping[Policy, Finding],
    inventory: Inventory,
    settings: Prune,
    pressure: Pressure | None,
) -> list[Candidate]:
    """Of what may go, what shall go; in order of harm, the oldest first."""
    if pressure is None:
        return [each for finding in findings.values() for each in finding.candidates]
    return select(findings, inventory, settings, pressure)


# Actions


def _actions(chosen: Iterable[Candidate], now: float, *, emergency: bool) -> Iterator[PruneAction]:
    group = 0
    for candidate in chosen:
        number = 0
        if len(candidate.sessions) > 1:
            group += 1
            number = group
        reason = candidate.reason.replace("{age}", format_age(now - candidate.clock))[:300]
        yield from _session_actions(candidate, number, reason)
        yield from _other_actions(candidate, reason, emergency=emergency)


def _session_actions(candidate: Candidate, group: int, reason: str) -> Iterator[PruneAction]:
    for session in candidate.sessions:
        yield PruneAction(
            action=Act.DELETE_SESSION,
            policy=candidate.policy,
            target=session.id,
            reason=reason,
            bytes=session.payload_bytes,
            frees=Frees.AFTER_UPKEEP,
            group=group,
            expected=msgspec.json.decode(session.expected),
        )


def _other_actions(candidate: Candidate, reason: str, *, emergency: bool) -> Iterator[PruneAction]:
    frees = Frees.NOW if emergency and candidate.is_garbage else Frees.AT_PURGE
    for file in candidate.files:
        yield PruneAction(
            action=Act.DELETE_FILE,
            policy=candidate.policy,
            target=path_of(file),
            reason=reason,
            bytes=file.allocated_bytes,
            frees=frees,
            expected=_file_marks(file, of_session=bool(candidate.sessions)),
        )
    leftover, checkpoint, run = candidate.leftover, candidate.checkpoint, candidate.run
    if leftover is not None:
        yield PruneAction(
            action=Act.DELETE_FILE,
            policy=candidate.policy,
            target=leftover.path,
            reason=reason,
            bytes=leftover.allocated_bytes,
            frees=frees,
            expected={
                "inode": leftover.inode,
                "size": leftover.size,
                "mtime_ns": leftover.mtime_ns,
            },
        )
    if checkpoint is not None:
        in_store = checkpoint.layout is CheckpointLayout.STORE
        yield PruneAction(
            action=Act.DELETE_PROJECT if in_store else Act.DELETE_REPO,
            policy=candidate.policy,
            target=checkpoint.target,
            reason=reason,
            bytes=checkpoint.allocated_bytes,
            frees=Frees.AFTER_UPKEEP if in_store else frees,
            expected=dict(checkpoint.expected),
        )
    if run is not None:
        yield PruneAction(
            action=Act.PURGE_TRASH,
            policy=candidate.policy,
            target=run.run,
            reason=reason,
            bytes=run.allocated_bytes,
            frees=Frees.NOW,
        )


def _file_marks(file: SessionFile, *, of_session: bool) -> dict[str, str | int | float | None]:
    marks: dict[str, str | int | float | None] = {
        "inode": file.inode,
        "size": file.size,
        "mtime_ns": file.mtime_ns,
    }
    if of_session:
        marks["session"] = file.session_id
    return marks


def _hash(home: str, actions: Sequence[PruneAction]) -> str:
    content = [(home, each.action, each.target, each.expected) for each in actions]
    return sha256(msgspec.json.encode(content)).hexdigest()[:_HASH_DIGITS]


# What stands in the way


def _over_caps(
    chosen: Sequence[Candidate], items: int, inventory: Inventory, settings: Prune
) -> list[str]:
    """Why this is more than a run may take by itself; what was given up already does not count."""
    caps = settings.caps
    fresh = [each for each in chosen if each.run is None]
    items -= len(chosen) - len(fresh)
    size = sum(each.bytes for each in fresh)
    found: list[str] = []
    if items > caps.items:
        found.append(
            f"{format_count(items)} items, more than {format_count(caps.items)} in one run"
        )
    if size > caps.bytes:
        found.append(f"{format_size(size)}, more than {format_size(caps.bytes)} in one run")
    for store, taken, whole, count in _shares(fresh, inventory):
        if count > FEW and taken > caps.share * whole:
            share = format_percent(min(1.0, taken / whole) if whole else 1.0)
            found.append(f"{share} of all {store}, more than {format_percent(caps.share)}")
    return found


def _shares(
    chosen: Sequence[Candidate], inventory: Inventory
) -> Iterator[tuple[str, int, int, int]]:
    """Of each store: what would go of it, what there is, and how many things that are."""
    sessions = sum(len(each.sessions) for each in chosen)
    yield "sessions", sessions, len(inventory.sessions), sessions
    files = [file for each in chosen for file in each.files]
    size = sum(file.allocated_bytes for file in files)
    yield "transcripts", size, inventory.transcripts_bytes, len(files)
    parts = [each for each in chosen if each.checkpoint is not None]
    size = sum(each.disk_bytes for each in parts)
    yield "checkpoints", size, inventory.checkpoints_bytes or 0, len(parts)


def _blocked(findings: Mapping[Policy, Finding], actions: Sequence[PruneAction]) -> tuple[str, str]:
    """Why nothing is planned, if a policy would not say what may go."""
    if actions:
        return "", ""
    return next(((each.blocked, each.why) for each in findings.values() if each.blocked), ("", ""))


def _last_copies(chosen: Iterable[Candidate]) -> Iterator[str]:
    """What a person should know who has named files whose deletion was not seen."""
    copies = sum(
        file.deletion is Deletion.UNPROVEN and each.policy is Policy.ORPHAN_FILES
        for each in chosen
        for file in each.files
    )
    if copies:
        yield (
            f"{format_count(copies)} of these files may be the last copies of conversations: their "
            "sessions are not in the database, which may have been restored from a backup. They "
            "wait in the trash, and `undo` gives them back until it is emptied"
        )


def _warnings(findings: Mapping[Policy, Finding]) -> Iterator[str]:
    for policy, finding in findings.items():
        if finding.blocked:
            yield f"{policy.value}: {finding.why}"


def _kept(findings: Mapping[Policy, Finding], protection: Protection) -> Counter[str]:
    """How many things each rule keeps that would go otherwise, and that no other policy takes."""
    seen = {
        key
        for finding in findings.values()
        for candidate in finding.candidates
        for key in _keys(candidate)
    }
    kept: Counter[str] = Counter()
    for finding in findings.values():
        for rule, candidate in finding.kept:
            for key in _keys(candidate):
                if key not in seen:
                    seen.add(key)
                    kept[protection.rules.get(key.removeprefix("session "), rule)] += 1
    return kept


def _keys(candidate: Candidate) -> list[str]:
    """What tells the things apart that a candidate is of; files of a session go without saying."""
    if candidate.sessions:
        return [f"session {each.id}" for each in candidate.sessions]
    if candidate.files:
        return [f"file {each.name}" for each in candidate.files]
    if candidate.checkpoint is not None:
        return [f"checkpoint {candidate.checkpoint.target}"]
    if candidate.leftover is not None:
        return [f"file {candidate.leftover.path}"]
    return [f"run {candidate.run.run}"] if candidate.run is not None else []
