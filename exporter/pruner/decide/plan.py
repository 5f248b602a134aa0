"""What a prune would do: a pure function of an inventory. A dry run prints the plan.

A plan by hand takes everything that the policies allow. A plan under pressure takes what is safest
to lose, until the low watermarks are reached. Expired trash is always included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct, structs

from exporter.config.prune import Prune
from exporter.pruner.decide.caps import CappedChoice, more_than_a_day, within_caps
from exporter.pruner.decide.findings import Finding, Scope, oldest_first
from exporter.pruner.decide.inventory import Inventory, SessionFile
from exporter.pruner.decide.items import Item, ItemGroup, path_of, when_freed
from exporter.pruner.decide.lineage import Lineages
from exporter.pruner.decide.policies import POLICIES
from exporter.pruner.decide.protection import Protection
from exporter.pruner.decide.room import bytes_of_rows, needed_bytes, with_room
from exporter.pruner.decide.selection import select, unreachable
from exporter.pruner.decide.thresholds import Pressure, for_manual_run
from exporter.pruner.expected import as_keys
from exporter.pruner.models import Act, PruneAction, PrunePlan, State
from exporter.runs.models import Action, Filter, NotYet, Plan, ProtectedCount
from exporter.text import format_age

NO_SPACE: Final = "no_space"
"""As a value of `hermes_prune_blocked{reason}`: there is no room for copies in the trash."""

_HASH_DIGITS: Final = 16


EVERYTHING: Final = Filter()


def plan_prune(
    home: str,
    inventory: Inventory,
    protection: Protection,
    settings: Prune,
    *,
    pressure: Pressure | None = None,
    by_hand: bool = False,
    by_age: bool = False,
    filter_by: Filter = EVERYTHING,
    findings: Mapping[str, Finding] | None = None,
    choice: Choice | None = None,
) -> PrunePlan:
    """Plan what to take from one home.

    With `by_age` an automatic plan has also what no threshold demands and is past its policy.
    Without `pressure` the plan has all that the policies allow; with it, what the thresholds
    demand, by hand without grace time and cool-down. An automatic plan has at most what the caps
    leave of these 24 hours; a plan by hand has a warning instead. `findings` is the result of
    `find_all`, and `choice` that of `take_within`, if the caller has it.
    """
    now = inventory.taken_at
    if protection.blocked:
        return Plan(home=home, created_at=now, blocked=protection.blocked, why=protection.why[:300])
    if findings is None:
        findings = find_all(inventory, protection, settings, by_hand=by_hand, filter_by=filter_by)
    if choice is None:
        choice = take_within(
            findings, inventory, settings, pressure=pressure, by_hand=by_hand, by_age=by_age
        )
    found, left, no_room = choice.taken, choice.left, choice.no_room
    actions = tuple(_actions(found.chosen, now, emergency=choice.is_emergency))
    blocked, why = _blocked(findings, choice)
    return Plan(
        home=home,
        hash=_hash(home, actions),
        created_at=now,
        actions=actions,
        protected=tuple(
            ProtectedCount(rule, items)
            for rule, items in sorted(_kept(findings, protection).items())
        ),
        unreachable=unreachable(findings, found, inventory, choice.pressure, no_room=left),
        blocked=blocked,
        why=why[:300],
        warnings=tuple(
            warning[:300]
            for warning in (
                *_policy_warnings(found.chosen),
                *more_than_a_day(found.chosen, inventory, settings.caps),
                *([no_room] if no_room and actions else ()),
                *_refusals(findings),
            )
        )
        if by_hand
        else (),
        capped=found.capped,
        needed_bytes=needed_bytes([*found.chosen, *left]),
        rows_trash_bytes=bytes_of_rows(found.chosen),
        not_yet=tuple(_not_yet(findings)),
    )


class Choice(Struct, frozen=True):
    """What a plan takes and what it leaves, before its actions are written out."""

    taken: CappedChoice
    left: list[ItemGroup]
    """What there is no room for."""
    no_room: str
    """Why there is none; empty if there is room for all."""
    pressure: Pressure | None

    @property
    def is_emergency(self) -> bool:
        return self.pressure is not None and self.pressure.emergency

    @property
    def items(self) -> int:
        return sum(len(group.items) for group in self.taken.chosen)

    @property
    def bytes(self) -> int:
        return sum(group.bytes for group in self.taken.chosen)


def take_within(
    findings: Mapping[str, Finding],
    inventory: Inventory,
    settings: Prune,
    *,
    pressure: Pressure | None = None,
    by_hand: bool = False,
    by_age: bool = False,
) -> Choice:
    """Choose from what the policies may take; see `plan_prune`."""
    if by_hand and pressure is not None:
        pressure = for_manual_run(pressure)
    chosen, left, no_room = with_room(
        choose(findings, inventory, settings, pressure, by_age=by_age), inventory
    )
    taken = CappedChoice(chosen, [], None)
    if not by_hand:
        emergency = pressure is not None and pressure.emergency
        taken = within_caps(chosen, inventory, settings.caps, emergency=emergency)
    return Choice(taken, left, no_room, pressure)


def figures_of(inventory: Inventory, findings: Mapping[str, Finding], choice: Choice) -> PrunePlan:
    """Return an automatic plan without its actions, for figures alone."""
    blocked, why = _blocked(findings, choice)
    return Plan(
        home="",
        created_at=inventory.taken_at,
        unreachable=unreachable(
            findings, choice.taken, inventory, choice.pressure, no_room=choice.left
        ),
        blocked=blocked,
        why=why[:300],
        capped=choice.taken.capped,
    )


def find_all(
    inventory: Inventory,
    protection: Protection,
    settings: Prune,
    *,
    by_hand: bool,
    filter_by: Filter = EVERYTHING,
    lineages: Lineages | None = None,
) -> dict[str, Finding]:
    """Return what each policy may take. What two may take is left to the safer one."""
    scope = Scope(
        inventory=inventory,
        protection=protection,
        settings=settings,
        lineages=lineages or Lineages(inventory.sessions),
        files_of=_files_by_session(inventory.files, protection),
        by_source={},
        by_hand=by_hand,
        older_than_seconds=filter_by.older_than_seconds,
        unproven=filter_by.unproven,
    )
    sources = {each.id: each.source for each in inventory.sessions} if filter_by.sources else {}
    wanted = [name for name in POLICIES if not filter_by.policies or name in filter_by.policies]
    findings = {
        name: Finding(()) if settings.is_off(name) else POLICIES[name].find(scope, POLICIES[name])
        for name in wanted
    }
    left = _once(
        [
            each
            for finding in findings.values()
            for each in finding.groups
            if _is_wanted(each, filter_by, sources)
        ]
    )
    return {
        policy: structs.replace(finding, groups=oldest_first(left.get(policy, ())))
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


def _is_wanted(group: ItemGroup, filter_by: Filter, sources: Mapping[str, str]) -> bool:
    """True if all of it is of the wanted sources. Items without a session are of none."""
    return not filter_by.sources or all(
        item.session is not None and sources.get(item.session) in filter_by.sources
        for item in group.leading
    )


def _once(groups: Iterable[ItemGroup]) -> dict[str, list[ItemGroup]]:
    """Return each item once, for the safest policy that takes it, delegates with their parent."""
    order = {policy: number for number, policy in enumerate(POLICIES)}
    taken: set[tuple[Act, str]] = set()
    left: dict[str, list[ItemGroup]] = {}
    # Largest families first: a safer policy must not take a part of one.
    for each in sorted(groups, key=lambda each: (-each.sessions, order[each.policy])):
        keys = [_key(item) for item in each.leading]
        if not taken.isdisjoint(keys):
            continue
        taken.update(keys)
        left.setdefault(each.policy, []).append(each)
    return {policy: [_without(each, taken) for each in found] for policy, found in left.items()}


def _key(item: Item) -> tuple[Act, str]:
    """Return what identifies an item, whichever policy found it."""
    return item.kind, item.target


def _without(group: ItemGroup, taken: Collection[tuple[Act, str]]) -> ItemGroup:
    """Return a conversation without the files that another policy takes."""
    files = group.items[len(group.leading) :]
    left = tuple([item for item in files if _key(item) not in taken])
    return group if len(left) == len(files) else structs.replace(group, items=group.leading + left)


def choose(
    findings: Mapping[str, Finding],
    inventory: Inventory,
    settings: Prune,
    pressure: Pressure | None,
    *,
    by_age: bool = False,
) -> list[ItemGroup]:
    """Return the groups to take: the safest policies first, of each the oldest first."""
    if pressure is None:
        return [each for finding in findings.values() for each in finding.groups]
    return select(findings, inventory, settings, pressure, by_age=by_age)


# Actions


def _actions(chosen: Iterable[ItemGroup], now: float, *, emergency: bool) -> Iterator[PruneAction]:
    families = 0
    for group in chosen:
        is_family = group.sessions > 1
        families += is_family
        reason = group.reason.replace("{age}", format_age(now - group.clock))[:300]
        for item in group.items:
            in_family = is_family and item.kind is Act.DELETE_SESSION
            yield Action(
                kind=item.kind,
                policy=group.policy,
                target=item.target,
                reason=reason,
                bytes=item.bytes,
                frees=when_freed(item, emergency=emergency),
                lowers=item.lowers,
                group=families if in_family else 0,
                expected=_expected(item),
                since=max(0.0, group.clock),
            )


def _expected(item: Item) -> State:
    if item.expected is None:
        return {}
    if isinstance(item.expected, bytes):
        found: State = msgspec.json.decode(item.expected)
        return found
    return as_keys(item.expected)


def _hash(home: str, actions: Sequence[PruneAction]) -> str:
    content = [(home, each.kind, each.target, each.expected) for each in actions]
    return sha256(msgspec.json.encode(content)).hexdigest()[:_HASH_DIGITS]


# What prevents actions


def _blocked(findings: Mapping[str, Finding], choice: Choice) -> tuple[str, str]:
    """Return why nothing is planned: no room, or a policy refused to find anything."""
    if choice.taken.chosen:
        return "", ""
    if choice.no_room:
        return NO_SPACE, choice.no_room
    return next(((each.blocked, each.why) for each in findings.values() if each.blocked), ("", ""))


def _policy_warnings(chosen: Sequence[ItemGroup]) -> Iterator[str]:
    for name, policy in POLICIES.items():
        yield from policy.warn(each for each in chosen if each.policy == name)


def _refusals(findings: Mapping[str, Finding]) -> Iterator[str]:
    for policy, finding in findings.items():
        if finding.blocked:
            yield f"{policy}: {finding.why}"


def _taken_now(findings: Mapping[str, Finding]) -> set[tuple[Act, str]]:
    """Return the keys of all that a policy may take now."""
    return {
        _key(item)
        for finding in findings.values()
        for group in finding.groups
        for item in group.leading
    }


def _not_yet(findings: Mapping[str, Finding]) -> Iterator[NotYet]:
    """Yield what each policy will take later. An item counts for the policy that takes it first."""
    seen = _taken_now(findings)
    coming = sorted(
        ((at, group) for finding in findings.values() for at, group in finding.too_young),
        key=lambda each: each[0],
    )
    moments: dict[str, list[float]] = {}
    for at, group in coming:
        for item in group.leading:
            if _key(item) not in seen:
                seen.add(_key(item))
                moments.setdefault(group.policy, []).append(at)
    for policy in findings:
        if policy in moments:
            yield NotYet(policy, len(moments[policy]), moments[policy][0], moments[policy][-1])


def _kept(findings: Mapping[str, Finding], protection: Protection) -> Counter[str]:
    """Count what each rule protects that would go otherwise and that no policy takes."""
    seen = _taken_now(findings)
    kept: Counter[str] = Counter()
    for finding in findings.values():
        for rule, group in finding.kept:
            for item in group.leading:
                if _key(item) not in seen:
                    seen.add(_key(item))
                    is_session = item.kind is Act.DELETE_SESSION
                    kept[protection.rules.get(item.target, rule) if is_session else rule] += 1
    return kept
