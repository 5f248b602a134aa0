"""The processes of a home: those that have its database open, its gateway, cron, kanban workers.

hermes_processes{home="default",kind="cli"} 2
hermes_gateway_up{home="default"} 1
"""

from __future__ import annotations

from collections import Counter

from exporter.collectors.registry import Label, Samples, collector, gauge
from exporter.collectors.view import HostView
from exporter.evidence.models import GatewayState
from exporter.hermes.process_kinds import ProcessKind
from exporter.snapshot import OTHER

STORM_WINDOW_SECONDS = 600.0

KIND = Label("kind", ("gateway", "cli", "tui", "cron", OTHER))

PROCESSES = gauge("hermes_processes", "Processes that have the home's database open.", "home", KIND)
GATEWAY_UP = gauge(
    "hermes_gateway_up",
    "1 if the gateway runs, 0 if it does not; absent where the home never had one or it cannot be "
    "told.",
    "home",
)
GATEWAY_START = gauge(
    "hermes_gateway_start_time_seconds", "When the running gateway was started.", "home"
)
GATEWAY_STARTS = gauge(
    "hermes_gateway_starts_recent", "Starts of the gateway in the last 10 minutes.", "home"
)
TICKER = gauge(
    "hermes_cron_ticker_timestamp_seconds", "When the cron ticker last went round.", "home"
)
DEAD_OWNER = gauge(
    "hermes_kanban_tasks_dead_owner",
    "Running kanban tasks of this host whose worker process is dead.",
    "home",
)

_KINDS = {
    ProcessKind.GATEWAY: "gateway",
    ProcessKind.CLI: "cli",
    ProcessKind.ONESHOT: "cli",
    ProcessKind.TUI: "tui",
    ProcessKind.SLASH_WORKER: "tui",
    ProcessKind.CRON: "cron",
}


@collector("processes", "processes that have each home's database open", PROCESSES)
def collect_processes(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.evidence is None:
            continue
        found = Counter(
            _KINDS.get(holder.kind, OTHER)
            for holder in home.evidence.holders
            if holder.kind is not ProcessKind.EXPORTER
        )
        for kind in KIND.values:
            samples.add(PROCESSES, found[kind], home.label, kind)


@collector("gateway", "the gateway of each home", GATEWAY_UP, GATEWAY_START, GATEWAY_STARTS)
def collect_gateway(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.probe is None or home.probe.gateway is None:
            continue
        ages = [view.now - start for start in home.probe.gateway.starts]
        recent = sum(0 <= age <= STORM_WINDOW_SECONDS for age in ages)
        samples.add(GATEWAY_STARTS, recent, home.label)
        gateway = home.evidence.gateway if home.evidence is not None else None
        if gateway is None or gateway.state is GatewayState.UNKNOWN:
            continue
        samples.add(GATEWAY_UP, gateway.state is GatewayState.UP, home.label)
        if gateway.state is GatewayState.UP and gateway.started_at is not None:
            samples.add(GATEWAY_START, gateway.started_at, home.label)


@collector("cron", "the cron ticker of each home", TICKER)
def collect_cron(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.snapshot is not None and home.snapshot.cron_ticker_at is not None:
            samples.add(TICKER, home.snapshot.cron_ticker_at, home.label)


@collector("kanban", "kanban tasks whose worker is dead", DEAD_OWNER)
def collect_kanban(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.kanban_dead_owner is not None:
            samples.add(DEAD_OWNER, home.kanban_dead_owner, home.label)
