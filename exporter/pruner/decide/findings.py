"""What policies get to decide from, and what each has found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from exporter.config.prune import Policies, PolicySettings, Prune, ThresholdName
from exporter.pruner.decide.inventory import Inventory, InventorySession, SessionFile
from exporter.pruner.decide.items import Item, ItemGroup, path_of
from exporter.pruner.decide.lineage import Lineages
from exporter.pruner.decide.protection import Protection
from exporter.pruner.decide.thresholds import relief
from exporter.pruner.models import Act


class Scope(Struct, frozen=True):
    """Everything that a policy may decide from."""

    inventory: Inventory
    protection: Protection
    settings: Prune
    lineages: Lineages
    files_of: dict[str, list[SessionFile]]
    """By session: the files that are deleted with it."""
    by_source: dict[str, Policies]
    """Cache of `policies_for`, by source."""
    by_hand: bool = False
    older_than_seconds: float | None = None
    """The age that a person asked for, in place of the settings."""
    unproven: bool = False
    """A person asked for files that may be last copies, too."""

    @property
    def now(self) -> float:
        return self.inventory.taken_at

    def keeps_file(self, file: SessionFile) -> str:
        """Return why this file stays, whatever its session is; empty if nothing keeps it."""
        if not file.is_own:
            return "not_own"
        return "restored" if path_of(file) in self.protection.restored else ""

    def age_of(self, policy: PolicySettings) -> float:
        """Return how old an item must be to go."""
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
    """What it would take, and the rule that protects it."""
    young: Mapping[ThresholdName, float] = {}
    """By how much items that are too young would lower each threshold."""
    protected: Mapping[ThresholdName, float] = {}
    """By how much protected items would lower each threshold."""
    oldest: float | None = None
    """The clock of the oldest unprotected item that this policy covers, old enough or not."""
    too_young: Sequence[tuple[float, ItemGroup]] = ()
    """What will be old enough, and when."""
    blocked: str = ""
    """Why it takes nothing, as a label value."""
    why: str = ""


class FindingBuilder:
    """Sorts what a policy covers into what may go, what is too young and what is protected."""

    def __init__(self, scope: Scope, policy: str) -> None:
        self._scope = scope
        self._policy = policy
        self._groups: list[ItemGroup] = []
        self._kept: list[tuple[str, ItemGroup]] = []
        self._young: Counter[ThresholdName] = Counter()
        self._too_young: list[tuple[float, ItemGroup]] = []
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
        """Let these items go together if no rule protects them and they are old enough.

        Their age is counted from `clock`. `older_than_seconds` replaces what the settings say.
        """
        restored = self._scope.protection.restored
        if restored and not kept_by and any(item.target in restored for item in items):
            kept_by = "restored"  # also if a policy has forgotten to ask
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
            self._too_young.append((clock + older_than_seconds, group))

    def finding(self) -> Finding:
        return Finding(
            groups=oldest_first(self._groups),
            kept=self._kept,
            young=self._young,
            protected=self._protected,
            oldest=self._oldest,
            too_young=self._too_young,
        )


def _add(sums: Counter[ThresholdName], group: ItemGroup) -> None:
    for item in group.items:
        for threshold in item.lowers:
            sums[threshold] += relief(item, threshold)


def oldest_first(groups: Iterable[ItemGroup]) -> list[ItemGroup]:
    """Sort by age, then by name, so that the same home gives the same plan."""
    return sorted(groups, key=lambda each: (each.clock, each.leading[-1].target))
