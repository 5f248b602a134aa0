"""Host dashboard: one machine, its homes, and what happens in them."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from dashboards.annotations import Annotation
from dashboards.board import PanelRow, Section, VariableSources, build_dashboard, equal_row
from dashboards.host_disk import disk, retention
from dashboards.host_health import database, processes
from dashboards.host_sessions import sessions, usage
from dashboards.panels import (
    ALARM,
    LOOK,
    NOW,
    PLAIN,
    TROUBLE,
    Column,
    Panel,
    stat_panel,
    table_panel,
)
from dashboards.words import BREAKER, DAYS, MODE, NO_AGENT, READABLE

RAW = VariableSources("hermes_exporter_build_info", "hermes_exporter_build_info", "hermes_home_up")
"""The series for the variables of the Host and Agent dashboards."""


def dashboard() -> model.Dashboard:
    return build_dashboard(
        "hermes-host",
        "Hermes / Host",
        "One host: its Hermes homes, their sessions, disk, database and gateway. "
        "Choose the host under Instance.",
        [
            Section(None, [_numbers(), equal_row(6, _homes())]),
            sessions(),
            usage(),
            disk(),
            retention(),
            database(),
            processes(),
        ],
        choices=RAW,
        since="now-6h",
        all_instances=False,
        annotations=[_prune_runs(), _reaps()],
    )


def _prune_runs() -> Annotation:
    return Annotation(
        "Prune run",
        "hermes_prune_last_run_timestamp_seconds{<home>} * 1000",
        "{{home}}: {{outcome}}",
        "blue",
        frozenset({"Disk", "Retention", "Database"}),
        values_are_moments=True,
    )


def _reaps() -> Annotation:
    return Annotation(
        "Sessions reaped",
        "sum by (instance, home) (increase(hermes_reaper_reaped_total{<home>}[5m])) > 0",
        "{{home}}",
        "purple",
        frozenset({"Sessions"}),
    )


def _numbers() -> PanelRow:
    return equal_row(
        5,
        stat_panel(
            "Unreadable homes",
            "Their figures are old or missing and nothing in them is reaped or pruned. "
            "`hermes-exporter check` says why, and what to grant or repair.",
            "sum(1 - hermes_home_up{<home>})",
            steps=ALARM,
            no_data=NO_AGENT,
        ),
        stat_panel(
            "Open sessions",
            "All sessions without an end, in use or not. The verdicts below say which.",
            "sum(hermes_sessions_open{<home>})",
            no_data=NO_AGENT,
        ),
        stat_panel(
            "Leaked sessions",
            "Open and proven dead. See them with `hermes-exporter sessions --verdict dead`, end "
            "them with `hermes-exporter reap`; with `reaper.mode: enforce` the agent does so "
            "itself.",
            'sum(hermes_sessions_open_by_verdict{<home>, verdict="dead"})',
            steps=TROUBLE,
            no_data="None",
        ),
        stat_panel(
            "Nearest threshold",
            "The value that is nearest to its high watermark. At 100% and above there is "
            "pressure: Disk below shows which threshold, `hermes-exporter prune --pressure` "
            "what would be pruned.",
            "max(hermes_prune_threshold_value{<home>} / hermes_prune_threshold_high{<home>})",
            unit="percentunit",
            decimals=0,
            steps=((1, LOOK), (1.1, NOW)),
            no_data="No thresholds",
        ),
        stat_panel(
            "Disk full in",
            "At the rate of the last six hours. Less than a day: check Bytes by kind, prune, or "
            "add space now.",
            "min(home:hermes_filesystem_avail_bytes:days_until_full{<home>})",
            unit=DAYS,
            decimals=1,
            steps=((1, LOOK), (3, PLAIN)),
            base=NOW,
            above=(365, "over a year"),
            trend=False,
            no_data="Not filling",
        ),
        stat_panel(
            "False reaps",
            "Sessions that were ended and then found in use, in the time shown; they were "
            "reopened. The goal is zero: set `reaper.mode: observe` and check `hermes-exporter "
            "history`.",
            "sum(increase(hermes_reaper_reopened_total{<home>}[$__range]))",
            decimals=0,
            steps=ALARM,
            trend=False,
            no_data="None",
        ),
    )


def _homes() -> Panel:
    return table_panel(
        "Homes",
        "Every home of this host. Red: look there first. `hermes-exporter status` shows the same "
        "on the host itself.",
        [
            Column("Readable", "min by (instance, home) (hermes_home_up{<home>})", words=READABLE),
            Column("Open", "sum by (instance, home) (hermes_sessions_open{<home>})"),
            Column(
                "Dead",
                'sum by (instance, home) (hermes_sessions_open_by_verdict{<home>, verdict="dead"})',
                steps=TROUBLE,
            ),
            Column(
                "Unknown",
                "sum by (instance, home) "
                '(hermes_sessions_open_by_verdict{<home>, verdict="unknown"})',
            ),
            Column(
                "Blind",
                "count by (instance, home) (hermes_exporter_blind{<home>} == 1) "
                "or 0 * sum by (instance, home) (hermes_home_up{<home>})",
                steps=TROUBLE,
            ),
            Column("Bytes", "sum by (instance, home) (hermes_disk_bytes{<home>})", unit="bytes"),
            Column(
                "Pressure",
                "max by (instance, home) (hermes_prune_threshold_value{<home>} / "
                "hermes_prune_threshold_high{<home>})",
                unit="percentunit",
                decimals=0,
                steps=((1, LOOK), (1.1, NOW)),
            ),
            Column(
                "Reaper", "max by (instance, home) (hermes_reaper_enforcing{<home>})", words=MODE
            ),
            Column(
                "Breaker",
                "max by (instance, home) (hermes_reaper_breaker_open{<home>})",
                words=BREAKER,
            ),
            Column(
                "Pruner", "max by (instance, home) (hermes_prune_enforcing{<home>})", words=MODE
            ),
            Column(
                "Schema",
                "max by (instance, home) (hermes_state_db_schema_version{<home>})",
                unit="none",
            ),
        ],
        labels={"instance": "Host", "home": "Home"},
        facts={
            "version": (
                "Hermes",
                "max by (instance, home, version) (hermes_agent_info{<home>})",
            )
        },
        widths={"Host": 150},
        sort="Dead",
        no_data=NO_AGENT,
    )
