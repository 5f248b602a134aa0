"""The agents themselves: do they run, scan and export?"""

from __future__ import annotations

from dashboards.alerts.alert import Alert, Dashboard, Severity

_JOB = 'job=~".*hermes-exporter.*"'

ALERTS = (
    Alert(
        name="HermesAgentDown",
        expression=f"avg_over_time(up{{{_JOB}}}[10m]) < 0.5",
        hold="5m",
        severity=Severity.WARNING,
        summary="A hermes-exporter agent does not answer.",
        description="""
            The agent {{ $labels.instance }} ({{ $labels.job }}) answered only
            {{ $value | humanizePercentage }} of the scrapes in the last 10 minutes. The homes on
            that host are not watched.""",
        dashboard=Dashboard.AGENT,
        agent_answers=False,
    ),
    # An agent in textfile mode is scraped as part of node_exporter.
    Alert(
        name="HermesAgentAbsent",
        expression=f"absent(up{{{_JOB}}} or hermes_exporter_build_info)",
        hold="10m",
        severity=Severity.CRITICAL,
        summary="Prometheus finds no hermes-exporter agent at all.",
        description="""
            No target has hermes-exporter in its job name, and there is no metric of an agent. No
            alert about any Hermes home can fire.""",
        dashboard=Dashboard.FLEET,
    ),
    Alert(
        name="HermesAgentsVanished",
        expression="""
            (
              max_over_time(job:hermes_agent_up:count[10m] offset 1h)
                - (
                  max_over_time(job:hermes_agent_up:count[5m])
                    or 0 * max_over_time(job:hermes_agent_up:count[10m] offset 1h)
                )
            ) >= 3
              > 0.2 * max_over_time(job:hermes_agent_up:count[10m] offset 1h)
            """,
        hold="10m",
        severity=Severity.WARNING,
        summary="Many hermes-exporter agents are no longer targets of Prometheus.",
        description="""
            {{ $value }} agents of job {{ $labels.job }} were scraped an hour ago and are not
            scraped now. They are no longer targets, so HermesAgentDown cannot fire for them.""",
        dashboard=Dashboard.FLEET,
    ),
    Alert(
        name="HermesScanStale",
        expression="time() - max_over_time(hermes_exporter_scan_timestamp_seconds[10m]) > 900",
        hold="5m",
        severity=Severity.WARNING,
        summary="A Hermes home has not been scanned for a long time.",
        description="""
            The agent {{ $labels.instance }} finished its last scan of home {{ $labels.home }}
            {{ $value | humanizeDuration }} ago. What it shows of that home is as old as that.""",
        dashboard=Dashboard.AGENT,
    ),
    Alert(
        name="HermesCollectorFailing",
        expression="max_over_time(hermes_exporter_collector_success[10m]) == 0",
        hold="10m",
        severity=Severity.WARNING,
        summary="A collector of a hermes-exporter agent fails.",
        description="""
            The collector {{ $labels.collector }} of the agent {{ $labels.instance }} always fails.
            Its metrics are missing, and alerts on them cannot fire.""",
        dashboard=Dashboard.AGENT,
    ),
    Alert(
        name="HermesConfigReloadFailed",
        expression="max_over_time(hermes_exporter_config_last_reload_successful[10m]) == 0",
        hold="5m",
        severity=Severity.WARNING,
        summary="A hermes-exporter agent could not read its new configuration.",
        description="""
            The agent {{ $labels.instance }} was told to reload its configuration, but the file has
            an error. The agent keeps the old settings.""",
        dashboard=Dashboard.AGENT,
    ),
    # The budget: 60 series of the agent and 600 of each home.
    Alert(
        name="HermesTooManySeries",
        expression="""
            max_over_time(hermes_exporter_series[10m])
              > on (job, instance) group_left ()
            60 + 600 * (
              count by (job, instance) (max_over_time(hermes_home_up[10m]))
                or 0 * max by (job, instance) (max_over_time(hermes_exporter_series[10m]))
            )
            """,
        hold="15m",
        severity=Severity.WARNING,
        summary="A hermes-exporter agent exports too many series.",
        description="""
            The agent {{ $labels.instance }} exports {{ $value }} series. The limit is 60, plus 600
            for each home. Many such agents would overload Prometheus.""",
        dashboard=Dashboard.AGENT,
    ),
)
