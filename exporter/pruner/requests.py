"""The requests to a worker for a prune plan, a prune and upkeep."""

from __future__ import annotations

from msgspec import Struct

from exporter.config.prune import Prune
from exporter.evidence.models import HomeEvidence
from exporter.evidence.openers import KnownOpeners
from exporter.pruner.beside import ProcessesAtPrune
from exporter.pruner.decide.thresholds import Pressure
from exporter.pruner.models import PruneMemory, PrunePlan, PruneReport
from exporter.runs.models import Filter
from exporter.snapshot import Count, Text, Word


class PrunePlanRequest(Struct, frozen=True):
    """What to plan a prune of, in a home that is being scanned."""

    settings: Prune
    memory: PruneMemory = PruneMemory()
    end_reason: str = "reaped"
    by_hand: bool = False
    by_pressure: bool = True
    """Only what crossed thresholds demand; otherwise all that the policies allow. A plan that is
    not by hand has that once a day, where `prune.when` has `age`."""
    filter_by: Filter = Filter()
    figures_by_hand: bool = False
    """The figures are those of `prune` and `prune --pressure` by hand, for `status`."""
    figures_only: bool = False
    """The plan is only for figures, and has no actions."""
    disk_share: float = 1.0
    """Of all bytes that the watched homes have on this filesystem, the share of this home."""
    sessions_max: int | None = None
    """Plan nothing in a home with more sessions; None: however much memory that takes."""


class PrunePlanResult(Struct, frozen=True):
    """A plan, its figures, and what to remember for the next plan."""

    plan: PrunePlan
    report: PruneReport
    memory: PruneMemory
    pressure: Pressure


class PruneRequest(Struct, frozen=True):
    """Execute a plan, in a process that need not have read the home."""

    plan: PrunePlan
    """Its home is the path of the home."""
    owner: int
    openers: KnownOpeners
    by_hand: bool = False
    only: tuple[str, ...] | None = None
    run: str = ""
    keep_seconds: float = 72 * 3600.0
    lock_budget_seconds: float = 0.05
    processes_at_prune: ProcessesAtPrune | None = None
    emergency: bool = False
    """The disk is so full that no trash waits any more."""

    @property
    def home(self) -> str:
        return self.plan.home


def is_quiet(evidence: HomeEvidence) -> bool:
    """True if a survey shows that no process has this home's database open."""
    return not evidence.blind and not evidence.holders


class UpkeepRequest(Struct, frozen=True):
    """VACUUM and `git gc`, in a home that no process uses."""

    home: str
    owner: int
    openers: KnownOpeners
    quiet: bool
    """True if `is_quiet` holds for a survey made just now."""
    vacuum: bool = False
    gc: bool = False


class UpkeepDone(Struct, frozen=True):
    """One kind of upkeep work."""

    work: Word
    why: Text = ""
    """Why it was not done; empty if it was."""
    before_bytes: Count = 0
    after_bytes: Count = 0
