"""What policies look at, and what each has found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from exporter.config.prune import Policies, PolicySettings, Prune
from exporter.pruner.decide.inventory import Inventory, InventorySession, SessionFile
from exporter.pruner.decide.items import Item, ItemGroup
from exporter.pruner.decide.lineage import Lineages
from exporter.pruner.decide.protection import Protection
from exporter.pruner.decide.thresholds import relief
from exporter.pruner.models import Act, ThresholdName


class Scope(Struct, frozen=True):
    """All that policies look at."""

    inventory: Inventory
    protection: Protection
    settings: Prune
    lineages: Lineages
    files_of: dict[str, list[SessionFile]]
    """By session: what goes with it when it is deleted."""
    by_source: dict[str, Policies]
    """Settings that were looked up already."""
    by_hand: bool = False
    older_than_seconds: float | None = None
    """In place of what the settings say, for a person who asks."""
    unproven: bool = False
    """A person takes files that may be last copies, too."""

    @property
    def now(self) -> float:
        return self.inventory.taken_at

    def age_of(self, policy: PolicySettings) -> float:
        """How old a thing must be."""
        if self.older_than_seconds is not None:
            return self.older_than_seconds
        return policy.older_than_seconds

    def policies_for(self, session: InventorySession) -> Policies:
        found = self.by_source.get(session.source)
        if found is None:
            found = self.by_source[session.source] = self.settings.policies_for(session.source)
        return found


class Finding(Struct, frozen=True):
    """What one policy has found."""

    groups: Sequence[ItemGroup]
    kept: Sequence[tuple[str, ItemGroup]] = ()
    """What it would take if it were not for a rule, and that rule."""
    young: Mapping[ThresholdName, float] = {}
    """By how much what is not old enough yet would lower each threshold."""
    protected: Mapping[ThresholdName, float] = {}
    """The same of what a rule keeps."""
    oldest: float | None = None
    """The clock of the oldest thing that this policy is for and no rule keeps."""
    blocked: str = ""
    """Why it takes nothing, as a label value."""
    why: str = ""


class FindingBuilder:
    """Sorts what a policy is for into what may go, what is too young and what a rule keeps."""

    def __init__(self, scope: Scope, policy: str) -> None:
        self._scope = scope
        self._policy = policy
        self._groups: list[ItemGroup] = []
        self._kept: list[tuple[str, ItemGroup]] = []
        self._young: Counter[ThresholdName] = Counter()
        self._protected: Counter[ThresholdName] = Counter()
        self._oldest: float | None = None

    def consider(
        self,
        *items: Item,
        clock: float,
        reason: str,
        kept_by: str = "",
        older_than_seconds: float | None = None,
    ) -> None:
        """These go, together, if no rule keeps them and they are older than the settings say.

        Their age is counted from `clock`; `older_than_seconds` stands in for the settings.
        """
        sessions = sum([item.kind is Act.DELETE_SESSION for item in items])
        group = ItemGroup(self._policy, clock, reason, items, sessions)
        scope = self._scope
        if older_than_seconds is None:
            older_than_seconds = scope.age_of(scope.settings.policies.named(self._policy))
        is_old = scope.now - clock > older_than_seconds
        if kept_by and is_old:
            self._kept.append((kept_by, group))
            _add(self._protected, group)
        if kept_by:
            return
        self._oldest = clock if self._oldest is None else min(clock, self._oldest)
        if is_old:
            self._groups.append(group)
        else:
            _add(self._young, group)

    def finding(self) -> Finding:
        return Finding(
            groups=oldest_first(self._groups),
            kept=self._kept,
            young=self._young,
            protected=self._protected,
            oldest=self._oldest,
        )


def _add(sums: Counter[ThresholdName], group: ItemGroup) -> None:
    for item in group.items:
        for threshold in item.lowers:
            sums[threshold] += relief(item, threshold)


def oldest_first(groups: Iterable[ItemGroup]) -> list[ItemGroup]:
    """By age; those of one age by their names, so that plans come out the same."""
    return sorted(groups, key=lambda each: (each.clock, each.leading[-1].target))
