"""Is anybody watching? The agents themselves."""

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
            {{ $value | humanizePercentage }} of the scrapes of the last 10 minutes: nobody watches
            the homes of that host.""",
        dashboard=Dashboard.AGENT,
    ),
    # An agent in textfile mode is scraped as part of node_exporter.
    Alert(
        name="HermesAgentAbsent",
        expression=f"absent(up{{{_JOB}}} or hermes_exporter_build_info)",
        hold="10m",
        severity=Severity.CRITICAL,
        summary="Prometheus knows of no hermes-exporter agent at all.",
        description="""
            There is neither a target with hermes-exporter in its job's name nor a metric of an
            agent: no alert about any Hermes home can fire.""",
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
        summary="Many hermes-exporter agents are no longer among the targets.",
        description="""
            {{ $value }} agents of job {{ $labels.job }} that Prometheus scraped an hour ago are no
            longer among its targets: they are not down, they are not asked any more.""",
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
            {{ $value | humanizeDuration }} ago: what it shows of that home is old.""",
        dashboard=Dashboard.AGENT,
    ),
    Alert(
        name="HermesCollectorFailing",
        expression="max_over_time(hermes_exporter_collector_success[10m]) == 0",
        hold="10m",
        severity=Severity.WARNING,
        summary="A collector of a hermes-exporter agent fails.",
        description="""
            The collector {{ $labels.collector }} of the agent {{ $labels.instance }} fails at every
            round: its metrics are missing, and alerts on them cannot fire.""",
        dashboard=Dashboard.AGENT,
    ),
    Alert(
        name="HermesConfigReloadFailed",
        expression="max_over_time(hermes_exporter_config_last_reload_successful[10m]) == 0",
        hold="5m",
        severity=Severity.WARNING,
        summary="A hermes-exporter agent could not read its new configuration.",
        description="""
            The agent {{ $labels.instance }} was told to reload a configuration that has an error
            and goes on with the old one.""",
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
        summary="A hermes-exporter agent exports more series than it may.",
        description="""
            The agent {{ $labels.instance }} exports {{ $value }} series, more than 60 and 600 for
            each of its homes: a fleet of such agents would overload Prometheus.""",
        dashboard=Dashboard.AGENT,
    ),
)
