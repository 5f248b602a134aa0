"""Build the requests that make a home's worker act: plan, evidence and settings in one request.

The evidence comes from the same scan as the plan. A process that opened the database after that
scan must count as new.
"""

from __future__ import annotations

from collections.abc import Collection

from exporter.config.mode import Mode
from exporter.config.settings import HomeSettings
from exporter.discovery.homes import Home
from exporter.evidence.models import HomeEvidence
from exporter.evidence.openers import KnownOpeners
from exporter.hermes.process_kinds import ProcessKind
from exporter.pruner.beside import ProcessesAtPrune
from exporter.pruner.requests import PrunePlanResult, PruneRequest
from exporter.reaper.plan import ReapPlan, ReapRequest
from exporter.reaper.possible_hosts import HostClass, class_of
from exporter.runs.models import Plan
from exporter.workers.protocol import HealRequest, PurgeRequest, RecoverRequest, UndoRequest


def reap_request(
    home: Home,
    evidence: HomeEvidence,
    own: HomeSettings,
    plan: ReapPlan | None,
    *,
    by_hand: bool = False,
    run: str = "",
) -> ReapRequest:
    """Build the request to reap one home with its settings.

    Without a plan, the worker only reopens sessions that an earlier reap ended wrongly.
    """
    return ReapRequest(
        home=home.path,
        owner=home.owner,
        plan=plan or Plan(home.path),
        heal_only=plan is None,
        by_hand=by_hand,
        openers=KnownOpeners.of(evidence),
        run=run,
        end_reason=own.reaper.end_reason,
        enforcing=own.reaper.mode is Mode.ENFORCE or by_hand,
        lock_budget_seconds=own.prune.lock_budget_seconds,
        undoable_seconds=own.prune.trash.keep_seconds,
        processes=tuple(
            holder.key for holder in evidence.holders if class_of(holder) is not HostClass.CLEARED
        ),
        silent=tuple(
            (holder.pid, holder.written)
            for holder in evidence.holders
            if holder.kind is ProcessKind.CLI and holder.written is not None and not holder.ours
        ),
    )


def prune_request(
    home: Home,
    evidence: HomeEvidence,
    own: HomeSettings,
    planned: PrunePlanResult,
    *,
    by_hand: bool = False,
    only: Collection[str] | None = None,
    run: str = "",
) -> PruneRequest:
    """Build the request to execute a plan; `only` limits it to these targets."""
    return PruneRequest(
        plan=planned.plan,
        owner=home.owner,
        openers=KnownOpeners.of(evidence),
        by_hand=by_hand,
        only=None if only is None else tuple(only),
        run=run,
        keep_seconds=own.prune.trash.keep_seconds,
        lock_budget_seconds=own.prune.lock_budget_seconds,
        processes_at_prune=ProcessesAtPrune.of(
            evidence.holders, own.reaper.presume_after.beside_servers()
        ),
        emergency=planned.pressure.emergency,
    )


def undo_request(home: Home, evidence: HomeEvidence, own: HomeSettings, run: str) -> UndoRequest:
    openers, budget = KnownOpeners.of(evidence), own.prune.lock_budget_seconds
    return UndoRequest(home.path, home.owner, run, openers, budget)


def purge_request(home: Home, evidence: HomeEvidence, run: str | None) -> PurgeRequest:
    return PurgeRequest(home.path, home.owner, run, KnownOpeners.of(evidence))


def settle_request(home: Home, evidence: HomeEvidence, *, reserve: bool = False) -> RecoverRequest:
    return RecoverRequest(home.path, home.owner, KnownOpeners.of(evidence), reserve)


def heal_request(home: Home, evidence: HomeEvidence, own: HomeSettings) -> HealRequest:
    openers, budget = KnownOpeners.of(evidence), own.prune.lock_budget_seconds
    return HealRequest(home.path, home.owner, openers, budget)
