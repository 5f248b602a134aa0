"""What a policy finds that may go: one thing, or several that go together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from exporter.config.prune import Policies, Prune
from exporter.config.prune import Policy as PolicySettings
from exporter.pruner.decide.inventory import (
    Checkpoint,
    Inventory,
    Leftover,
    SessionFile,
    StockedSession,
    TrashedRun,
)
from exporter.pruner.decide.lineage import Lineages
from exporter.pruner.decide.protection import Protection
from exporter.pruner.decide.thresholds import Mark
from exporter.pruner.models import Policy


class Candidate(Struct, frozen=True, gc=False):
    """Something a policy may take, whole or not at all."""

    policy: Policy
    clock: float
    """Its age is counted from here; what has the oldest goes first."""
    reason: str
    """With `{age}` where its age is to be told."""
    sessions: tuple[StockedSession, ...] = ()
    """Children before parents."""
    files: tuple[SessionFile, ...] = ()
    checkpoint: Checkpoint | None = None
    leftover: Leftover | None = None
    run: TrashedRun | None = None
    is_garbage: bool = False
    """Half a pack or old trash, of no use: in an emergency it may go without the trash."""

    @property
    def disk_bytes(self) -> int:
        """Allocated bytes; rows of a database have none."""
        return sum(file.allocated_bytes for file in self.files) + sum(
            part.allocated_bytes
            for part in (self.checkpoint, self.leftover, self.run)
            if part is not None
        )

    @property
    def payload_bytes(self) -> int:
        return sum(session.payload_bytes for session in self.sessions)

    @property
    def bytes(self) -> int:
        return self.disk_bytes + self.payload_bytes

    def relief(self, mark: Mark) -> int:
        """By how much it lowers a threshold: in bytes, or sessions where those are counted."""
        match mark:
            case Mark.TRANSCRIPTS:
                return sum(file.allocated_bytes for file in self.files)
            case Mark.CHECKPOINTS:
                parts = (self.checkpoint, self.leftover)
                return sum(part.allocated_bytes for part in parts if part is not None)
            case Mark.STATE_DB:
                return self.payload_bytes
            case Mark.EMPTY_SESSIONS:
                return sum(session.size == 0 for session in self.sessions)
            case Mark.DISK_USED:
                return 0 if self.sessions else self.disk_bytes


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

    def policies_for(self, session: StockedSession) -> Policies:
        found = self.by_source.get(session.source)
        if found is None:
            found = self.by_source[session.source] = self.settings.policies_for(session.source)
        return found


class Finding(Struct, frozen=True):
    """What one policy has found."""

    candidates: Sequence[Candidate]
    kept: Sequence[tuple[str, Candidate]] = ()
    """What it would take if it were not for a rule, and that rule."""
    young: Mapping[Mark, float] = {}
    """By how much what is not old enough yet would lower each threshold."""
    protected: Mapping[Mark, float] = {}
    """The same of what a rule keeps."""
    oldest: float | None = None
    """The clock of the oldest thing that this policy is for and no rule keeps."""
    blocked: str = ""
    """Why it takes nothing, as a label value."""
    why: str = ""


class Find(Protocol):
    """A policy: finds what may go, and takes nothing."""

    def __call__(self, scope: Scope) -> Finding: ...


class Tally:
    """Gathers a finding."""

    def __init__(self, scope: Scope) -> None:
        self._now = scope.now
        self._candidates: list[Candidate] = []
        self._kept: list[tuple[str, Candidate]] = []
        self._young: Counter[Mark] = Counter()
        self._protected: Counter[Mark] = Counter()
        self._oldest: float | None = None

    def consider(self, candidate: Candidate, older_than_seconds: float, kept_by: str = "") -> None:
        """It goes if no rule keeps it and it is old enough; at that very age it is not."""
        is_old = self._now - candidate.clock > older_than_seconds
        if kept_by and is_old:
            self._kept.append((kept_by, candidate))
            _add(self._protected, candidate)
        if kept_by:
            return
        self._oldest = (
            candidate.clock if self._oldest is None else min(candidate.clock, self._oldest)
        )
        if is_old:
            self._candidates.append(candidate)
        else:
            _add(self._young, candidate)

    def finding(self) -> Finding:
        return Finding(
            candidates=oldest_first(self._candidates),
            kept=self._kept,
            young=self._young,
            protected=self._protected,
            oldest=self._oldest,
        )


def _add(sums: Counter[Mark], candidate: Candidate) -> None:
    for mark in Mark:
        amount = candidate.relief(mark)
        if amount:
            sums[mark] += amount


def oldest_first(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda each: (each.clock, _name(each)))


def _name(candidate: Candidate) -> str:
    """What tells two candidates of one policy apart, so that plans come out the same."""
    if candidate.sessions:
        return candidate.sessions[-1].id
    if candidate.files:
        return candidate.files[0].name
    if candidate.checkpoint is not None:
        return candidate.checkpoint.target
    if candidate.leftover is not None:
        return candidate.leftover.path
    return candidate.run.run if candidate.run is not None else ""
