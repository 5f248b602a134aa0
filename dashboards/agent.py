"""Agent dashboard: the exporter itself: scans, collectors, blindness, series, memory."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from dashboards.board import (
    PanelRow,
    Section,
    VariableSources,
    build_dashboard,
    equal_row,
    row_of_widths,
)
from dashboards.panels import (
    ALARM,
    LOOK,
    NOW,
    TROUBLE,
    Column,
    Panel,
    Query,
    graph_panel,
    stat_panel,
    table_panel,
    to_host,
)
from dashboards.words import COLLECTORS, DAYS, MINUTES, NO_AGENT, RELOADED, UP

RAW = VariableSources("hermes_exporter_build_info", "hermes_exporter_build_info", "hermes_home_up")
SERIES_LIMIT = 400
"""Per home; see docs/using.md."""


def dashboard() -> model.Dashboard:
    return build_dashboard(
        "hermes-agent",
        "Hermes / Agent",
        "The agents themselves: do they scan in time, what can they not see, what do they cost.",
        [
            Section(None, [_numbers(), row_of_widths(8, (14, _agents()), (10, _blindness()))]),
            Section("Scans", [equal_row(8, _ages(), _durations())]),
            Section("Collectors", [equal_row(8, _collectors(), _failures())]),
            Section("Scrapes and series", [equal_row(8, _series(), _scrapes())]),
            Section("Process", [equal_row(8, _memory(), _processor(), _descriptors())]),
        ],
        choices=RAW,
        since="now-6h",
        all_instances=True,
    )


def _numbers() -> PanelRow:
    return equal_row(
        5,
        stat_panel(
            "Agents down",
            "Agents that Prometheus could not scrape. Check the service on that host "
            "(`systemctl status hermes-exporter`), then the network.",
            "sum(1 - up{<agent>})",
            steps=ALARM,
            no_data="Nothing is scraped under this job",
        ),
        stat_panel(
            "Oldest scan",
            "Time since the scan of the home that waits longest. More than a few minutes: its "
            "filesystem hangs or it is very large; see Scans below.",
            "max(time() - hermes_exporter_scan_timestamp_seconds{<home>})",
            unit="s",
            decimals=0,
            steps=((120, LOOK), (600, NOW)),
            no_data=NO_AGENT,
        ),
        stat_panel(
            "Failing collectors",
            "Collectors that failed at the last scan; their metrics are missing. The agent's "
            "log names the cause; please report it.",
            "sum(1 - hermes_exporter_collector_success{<agent>})",
            steps=TROUBLE,
            no_data=NO_AGENT,
        ),
        stat_panel(
            "Blind spots",
            "What agents cannot see; sessions there stay unknown and nothing is reaped. "
            "`hermes-exporter check` says what to grant.",
            "count(hermes_exporter_blind{<home>} == 1) or 0 * sum(hermes_home_up{<home>})",
            steps=TROUBLE,
            no_data=NO_AGENT,
        ),
        stat_panel(
            "Failed reloads",
            "Agents whose last reload failed: they keep the old settings. `hermes-exporter "
            "check` names the line and the fix.",
            "sum(1 - hermes_exporter_config_last_reload_successful{<agent>})",
            steps=TROUBLE,
            no_data=NO_AGENT,
        ),
        stat_panel(
            "Most series",
            "A home has at most 600 series and the agent about 60. If there are many more, "
            "please report it.",
            "max(hermes_exporter_series{<agent>})",
            no_data=NO_AGENT,
        ),
    )


def _agents() -> Panel:
    return table_panel(
        "Agents",
        "Every agent, with its version and its uptime. Down: check the service on the host. An "
        "uptime that stays short: the agent is killed; look for out-of-memory messages of the "
        "kernel.",
        [
            Column("Agent", "max by (instance) (up{<agent>})", words=UP, width=80),
            Column(
                "Above limits",
                "sum by (instance) (hermes_exporter_limited{<agent>})",
                steps=TROUBLE,
                width=110,
            ),
            Column(
                "Running for",
                "(time() - max by (instance) (process_start_time_seconds{<agent>})) / 86400",
                unit=DAYS,
                decimals=1,
            ),
            Column("Homes", "count by (instance) (hermes_home_up{<agent>})", width=80),
            Column("Series", "max by (instance) (hermes_exporter_series{<agent>})", width=90),
            Column(
                "Configuration",
                "min by (instance) (hermes_exporter_config_last_reload_successful{<agent>})",
                words=RELOADED,
            ),
        ],
        labels={"instance": "Host"},
        facts={
            "version": (
                "Version",
                "max by (instance, version) (hermes_exporter_build_info{<agent>})",
            )
        },
        links={"Host": to_host()},
        sort="Agent",
        ascending=True,
        no_data="Nothing is scraped under this job",
    )


def _blindness() -> Panel:
    return table_panel(
        "What cannot be seen",
        "Why an agent cannot tell whether sessions of a home are alive. Most reasons go away if "
        "the agent runs as root on the host itself; `hermes-exporter check` says what to grant.",
        [
            Column(
                "Blind",
                "max by (instance, home, reason) (hermes_exporter_blind{<home>} == 1)",
                words={"1": ("yes", LOOK)},
                width=80,
            )
        ],
        labels={"instance": "Host", "home": "Home", "reason": "Reason"},
        links={"Host": to_host(home="Home")},
        no_data="Everything can be seen",
    )


def _ages() -> Panel:
    return graph_panel(
        "Oldest scans",
        "Normal: a saw-tooth with the scan interval. A line that only rises: a scan does not "
        "end, because a filesystem hangs or a database is locked. The agent's log says which.",
        Query(
            "topk(8, max by (instance, home) (time() - "
            "hermes_exporter_scan_timestamp_seconds{<home>}) / 60)",
            "{{instance}} {{home}}",
        ),
        unit=MINUTES,
        no_data=NO_AGENT,
    )


def _durations() -> Panel:
    return graph_panel(
        "Longest scans",
        "Long scans: large homes or slow disks. The first scan and the full one every six hours "
        "take longer. If the time nears the interval, raise `scan.interval`.",
        Query(
            "topk(8, max by (instance, home) (hermes_exporter_scan_duration_seconds{<home>}))",
            "{{instance}} {{home}}",
        ),
        unit="s",
        no_data=NO_AGENT,
    )


def _collectors() -> Panel:
    return graph_panel(
        "Slowest collectors",
        "Time to turn a scan into metrics, worst agent of each collector. Normal: milliseconds. "
        "`--no-collector.NAME` switches a slow one off.",
        Query(
            "topk(8, max by (collector) (hermes_exporter_collector_duration_seconds{<agent>}))",
            "{{collector}}",
        ),
        unit="s",
        colours=COLLECTORS,
        no_data=NO_AGENT,
    )


def _failures() -> Panel:
    return graph_panel(
        "Collectors that failed",
        "Agents with a collector that failed, by collector. Its metrics are missing there and "
        "alerts on them are silent: read that agent's log.",
        Query(
            "sum by (collector) (1 - hermes_exporter_collector_success{<agent>}) > 0",
            "{{collector}}",
        ),
        stacked=True,
        shades=LOOK,
        reaches=1,
        no_data="None failed",
    )


def _series() -> Panel:
    return graph_panel(
        "Series of an agent",
        "Series per agent in Prometheus. It grows only with homes, because label values are "
        "limited. If it grows without new homes, please report it.",
        Query("topk(8, max by (instance) (hermes_exporter_series{<agent>}))", "{{instance}}"),
        no_data=NO_AGENT,
    )


def _scrapes() -> Panel:
    return graph_panel(
        "Slowest scrapes",
        "Scrapes are answered from memory in milliseconds, also during a scan. If they are "
        "slow: the network, or a host without free CPU time.",
        Query("topk(8, max by (instance) (scrape_duration_seconds{<agent>}))", "{{instance}}"),
        unit="s",
        no_data="Nothing is scraped under this job",
    )


def _memory() -> Panel:
    return graph_panel(
        "Memory of an agent",
        "Resident memory of the agent without its workers. Normal: constant. If it rises for "
        "days, restart the service and report it.",
        Query(
            "topk(8, max by (instance) (process_resident_memory_bytes{<agent>}))", "{{instance}}"
        ),
        unit="bytes",
        no_data=NO_AGENT,
    )


def _processor() -> Panel:
    return graph_panel(
        "Processor time of an agent",
        "Share of one CPU; normal: one or two percent. More: very many processes on the host, "
        "or a `scan.interval` that is too short.",
        Query(
            "topk(8, sum by (instance) "
            "(rate(process_cpu_seconds_total{<agent>}[$__rate_interval])))",
            "{{instance}}",
        ),
        unit="percentunit",
        no_data=NO_AGENT,
    )


def _descriptors() -> Panel:
    return graph_panel(
        "Open files of an agent",
        "Open files as a share of the limit. Normal: few and constant. If it rises, the agent "
        "leaks them: restart it and report it.",
        Query(
            "topk(8, max by (instance) (process_open_fds{<agent>} / process_max_fds{<agent>}))",
            "{{instance}}",
        ),
        unit="percentunit",
        no_data=NO_AGENT,
    )
