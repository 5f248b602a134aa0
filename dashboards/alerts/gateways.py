"""The gateway, its cron ticker, and workers that died."""

from __future__ import annotations

from dashboards.alerts.alert import Alert, Dashboard, Severity

ALERTS = (
    # One that has not run for a week was stopped on purpose.
    Alert(
        name="HermesGatewayDown",
        expression="""
            max_over_time(hermes_gateway_up[5m]) == 0
            and on (job, instance, home) (
              max_over_time(home:hermes_gateway_up:max[2h]) == 1
                or max_over_time(home:hermes_gateway_up:max1h[7d]) == 1
            )
            """,
        hold="5m",
        severity=Severity.CRITICAL,
        summary="The gateway of a Hermes home does not run.",
        description="""
            The gateway of home {{ $labels.home }} on {{ $labels.instance }} ran within the last
            week and does not run now: chats are not answered.""",
        dashboard=Dashboard.HOST,
    ),
    Alert(
        name="HermesGatewayRestartStorm",
        expression="max_over_time(hermes_gateway_starts_recent[5m]) >= 5",
        hold="10m",
        severity=Severity.CRITICAL,
        summary="The gateway of a Hermes home restarts again and again.",
        description="""
            The gateway of home {{ $labels.home }} on {{ $labels.instance }} was started
            {{ $value }} times within 10 minutes: it fails soon after each start.""",
        dashboard=Dashboard.HOST,
    ),
    # The ticker runs every minute inside the gateway, which has its own alert.
    Alert(
        name="HermesCronTickerSilent",
        expression="""
            time() - max_over_time(hermes_cron_ticker_timestamp_seconds[10m]) > 600
            and on (job, instance, home) min_over_time(hermes_gateway_up[10m]) == 1
            """,
        hold="10m",
        severity=Severity.WARNING,
        summary="The cron ticker of a running gateway is silent.",
        description="""
            The cron ticker of home {{ $labels.home }} on {{ $labels.instance }} last ran
            {{ $value | humanizeDuration }} ago although the gateway runs: scheduled jobs do not
            start.""",
        dashboard=Dashboard.HOST,
    ),
    Alert(
        name="HermesKanbanDeadOwner",
        expression="min_over_time(hermes_kanban_tasks_dead_owner[10m]) > 0",
        hold="1h",
        severity=Severity.WARNING,
        summary="Kanban tasks are marked as running but their worker is dead.",
        description="""
            {{ $value }} running task(s) of home {{ $labels.home }} on {{ $labels.instance }} name a
            worker process that is gone: no process works on them.""",
        dashboard=Dashboard.HOST,
    ),
)
