"""The JSON that `status`, `/api/v1/status` and the host page show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from exporter import __version__
from exporter.collectors.labels import LabelFamily, label_value
from exporter.collectors.view import HomeView, HostView
from exporter.config.mode import Mode
from exporter.config.settings import ConfiguredHome, Settings
from exporter.reaper.models import UnknownCount, Verdict
from exporter.snapshot import DiskKind, DiskUsage


def status(
    view: HostView,
    settings: Settings,
    *,
    public: bool,
    by_agent: bool,
    started_at: float | None = None,
) -> dict[str, Any]:
    """Return all homes in one document; `public` omits what HTTP must not show: paths, PIDs.

    `by_agent` is True if an agent answers, and not a command alone; `started_at` is when it began.
    """
    refused = [
        {"path": each.path, "why": each.why, "fix": each.fix, "own": each.own}
        for each in view.refused
    ]
    return {
        "homes": [_home(home, public=public, by_agent=by_agent) for home in view.homes],
        "refused": len(refused) if public else refused,
        "agent": {
            "version": __version__,
            "mode": modes(settings),
            "started_at": started_at,
            "blind": list(view.blind),
            "config_ok": view.config_reload_successful,
        },
    }


def modes(settings: Settings) -> dict[str, str]:
    """Return the mode of reaper and pruner: `enforce` if at least one home is enforced."""
    entries = tuple(home for home in settings.homes if home.watch)
    sections: tuple[Settings | ConfiguredHome, ...] = (
        (settings, *entries) if settings.discover or not entries else entries
    )
    return {
        "reaper": _mode(any(each.reaper.mode is Mode.ENFORCE for each in sections)),
        "prune": _mode(any(each.prune.mode is Mode.ENFORCE for each in sections)),
    }


def _mode(enforcing: bool) -> str:
    return (Mode.ENFORCE if enforcing else Mode.OBSERVE).value


def _home(home: HomeView, *, public: bool, by_agent: bool) -> dict[str, Any]:
    sessions = home.snapshot.sessions if home.snapshot is not None else None
    row: dict[str, Any] = {"home": home.label}
    if not public:
        row["path"] = home.path
        row["why_down"] = "" if home.up else home.detail
        row["deleted_wal_pids"] = home.evidence.deleted_wal_pids if home.evidence else None
        row["lockless_pids"] = home.evidence.lockless_pids if home.evidence else None
    open_now = sum(sessions.open_by_source.values()) if sessions is not None else None
    dead = sum(v.sessions for v in home.verdicts if v.verdict is Verdict.DEAD)
    return row | {
        "up": home.up,
        "trouble": home.trouble.value,
        "blind": list(home.blind),
        "mode": {"reaper": _mode(home.reaper_enforcing), "prune": _mode(home.prune_enforcing)},
        "sessions": {
            "open": open_now,
            "ended": sum(e.sessions for e in sessions.ended) if sessions is not None else None,
            "empty": sessions.empty if sessions is not None else None,
            "trivial": sessions.trivial if sessions is not None else None,
        },
        "not_listed": home.sessions_left_out,
        "verdicts": _verdicts(home, open_now),
        "disk": disk_bytes(home),
        "thresholds": _thresholds(home),
        "breaker": home.runs.tripped,
        "would_reap": dead if home.up else None,
        "slow_start": _slow_start(home, dead),
        # What an automatic run would take now.
        "would_prune": {
            "items": home.prune.would_items if home.prune is not None else None,
            "bytes": home.prune.would_bytes if home.prune is not None else None,
        },
        # What `prune` by hand would take now.
        "could_prune": {
            "items": home.prune.could_items if home.prune is not None else None,
            "bytes": home.prune.could_bytes
            if home.prune is not None and home.prune.could_items is not None
            else None,
        },
        "has_database": home.snapshot.database_present if home.snapshot is not None else None,
        "cannot_write": cannot_write(home, by_agent=by_agent),
        "scanned_at": home.scanned_at,
        "leaked": _leaked(home),
        "unknown": {each.reason.value: each.sessions for each in home.unknown},
        "waiting": [_waiting(each, public=public) for each in home.unknown],
        "capped": _capped(home),
        "next_clean_up_at": home.next_clean_up_at,
        **_prune_figures(home),
    }


def cannot_write(home: HomeView, *, by_agent: bool) -> str | None:
    """Return why the plans cannot be executed; None if nothing is known against it.

    An agent that only observes needs no permission to write homes, and often has none. Commands
    then act without it, so this is no obstacle.
    """
    acts = home.reaper_enforcing or home.prune_enforcing or not by_agent
    return (home.probe.cannot_write or None) if acts and home.probe is not None else None


def _capped(home: HomeView) -> dict[str, Any] | None:
    """Return what `prune.caps` makes automatic runs leave for later; None if that is nothing."""
    found = home.prune.capped if home.prune is not None else None
    if found is None:
        return None
    return {
        "items": found.items,
        "bytes": found.bytes,
        "more_at": found.more_at,
    }


def _waiting(each: UnknownCount, *, public: bool) -> dict[str, Any]:
    """Return why sessions are `unknown`, and until when."""
    row: dict[str, Any] = {} if public else {"process": each.process}
    return row | {
        "reason": each.reason.value,
        "sessions": each.sessions,
        "overdue": each.overdue,
        "processes": each.processes,
        "process_began_at": each.process_began_at,
        "dead_at": each.dead_at,
    }


def _slow_start(home: HomeView, dead: int) -> dict[str, int] | None:
    """Return what automatic reaping may end in this hour, and how many wait; None if it is off."""
    if not home.reaper_enforcing or home.runs.tripped is not None:
        return None
    limit = home.hourly_limit
    return {
        "per_hour": limit.sessions,
        "left": limit.left,
        "waiting": max(0, dead - limit.left),
    }


def _leaked(home: HomeView) -> list[dict[str, Any]]:
    """Count the dead sessions by source and cause; a source that may not be shown is `other`."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in home.leaks:
        counts[label_value(LabelFamily.SOURCE, each.source), each.cause.value] += each.sessions
    return [
        {"source": source, "cause": cause, "sessions": number}
        for (source, cause), number in sorted(counts.items())
        if number
    ]


def _prune_figures(home: HomeView) -> dict[str, Any]:
    """Return what each policy could take, and what prevents it; empty before the first plan."""
    report = home.prune
    return {
        "planned_at": report.made_at if report is not None else None,
        "policies": [
            {
                "policy": each.policy,
                "eligible": each.eligible,
                "items": each.items,
                "bytes": each.reclaimable_bytes,
            }
            for each in (report.policies if report is not None else ())
        ],
        "prune_blocked": list(report.blocked) if report is not None else [],
        "unreachable": [
            {"threshold": each.threshold, "reason": each.reason, "bytes": each.bytes}
            for each in (report.unreachable if report is not None else ())
        ],
    }


def last_runs(view: HostView) -> list[dict[str, Any]]:
    """Return the newest runs of each home as `history --json` prints them, the newest first."""
    return newest_first(run.row(home.label) for home in view.homes for run in home.runs.last)


def newest_first(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort runs as `history` lists them."""
    return sorted(runs, key=lambda row: (row["started_at"], row["run"]), reverse=True)


def _thresholds(home: HomeView) -> list[dict[str, Any]]:
    """Return the thresholds and the home's values; none before the pruner's first check."""
    found = home.prune.thresholds if home.prune is not None else []
    return [
        {
            "name": each.name,
            "value": each.value,
            "high": each.high,
            "low": each.low,
            "pressure": each.pressure,
            "over_since": each.over_since,
            "acts_at": each.acts_at,
        }
        for each in found
    ]


def _verdicts(home: HomeView, open_now: int | None) -> dict[str, int | None]:
    """Count the open sessions by verdict; None, not 0, if the database was not read."""
    if open_now is None:
        return {verdict.value: None for verdict in Verdict}
    counts: dict[str, int | None] = {}
    for verdict in Verdict:
        counts[verdict.value] = sum(v.sessions for v in home.verdicts if v.verdict is verdict)
    return counts


def disk_bytes(home: HomeView) -> dict[str, int]:
    """Return allocated bytes by kind; empty if not all of them are known."""
    if home.snapshot is None or not home.up:
        return {}
    usage = home.snapshot.disk.usage
    return {kind.value: usage.get(kind, DiskUsage()).allocated_bytes for kind in DiskKind}
