"""Sessions that leak, reapers that err, conversations that go in circles."""

from __future__ import annotations

from dashboards.alerts.alert import Alert, Dashboard, Severity

ALERTS = (
    Alert(
        name="HermesLeakRatioHigh",
        expression="""
            (
              max_over_time(home:hermes_sessions_leaked:sum[10m])
                / max_over_time(home:hermes_sessions_open:sum[10m])
            ) > 0.5
            and max_over_time(home:hermes_sessions_leaked:sum[10m]) >= 50
            """,
        hold="1h",
        severity=Severity.WARNING,
        summary="Most open sessions of a Hermes home are dead.",
        description="""
            {{ $value | humanizePercentage }} of the open sessions of home {{ $labels.home }} on
            {{ $labels.instance }} are dead: no process runs them, and no process ends them.""",
        dashboard=Dashboard.HOST,
    ),
    # A home that cannot be read has an alert of its own, and other systems than Linux offer no
    # more to see.
    Alert(
        name="HermesReaperBlind",
        expression="""
            max_over_time(hermes_exporter_blind{reason!~"platform|database"}[15m])
              * on (job, instance, home) group_left ()
            (max_over_time(home:hermes_sessions_unknown:sum[15m]) > 0)
            """,
        hold="6h",
        severity=Severity.WARNING,
        summary="The agent could not judge some sessions for hours.",
        description="""
            The agent {{ $labels.instance }} cannot see all of home {{ $labels.home }} (reason:
            {{ $labels.reason }}), and {{ $value }} open session(s) have the verdict unknown.
            Unknown sessions are never reaped.""",
        dashboard=Dashboard.HOST,
    ),
    # Beside a chat or another program the agent itself watches for three days before it presumes
    # anything: what is overdue by the timestamps of Hermes may wait that long.
    Alert(
        name="HermesSessionsUnjudged",
        expression="""
            max_over_time(hermes_sessions_overdue{reason!~"chat|unknown_program"}[10m]) >= 20
            or
            (
              max_over_time(hermes_sessions_overdue{reason=~"chat|unknown_program"}[10m]) >= 20
              and max_over_time(hermes_sessions_overdue[10m] offset 3d) >= 20
            )
            """,
        hold="1d",
        severity=Severity.WARNING,
        summary="Many sessions of a Hermes home stay without a verdict.",
        description="""
            {{ $value }} open session(s) of home {{ $labels.home }} on {{ $labels.instance }} have
            had no verdict for a day beyond the time that reaper.presume_after asks (reason:
            {{ $labels.reason }}). They are neither shown as leaks nor ended. hermes-exporter status
            says what they wait for.""",
        dashboard=Dashboard.HOST,
    ),
    # The agent's own reaps by their counter, if as many leaked anew (an old backlog may be drained
    # in a night); those of Hermes and of others by what they leave.
    Alert(
        name="HermesReapStorm",
        expression="""
            label_replace(
              max_over_time(home:hermes_reaper_reaped:increase1h[10m]) > 200
                and max_over_time(home:hermes_sessions_leaked:increase1h[10m]) > 200,
              "end_reason", "reaped", "", ""
            )
            or
            max_over_time(home:hermes_sessions_ended:increase1h[10m]) > 200
            """,
        hold="5m",
        severity=Severity.WARNING,
        summary="Very many sessions of a Hermes home were reaped within an hour.",
        description="""
            {{ $value | humanize }} sessions of home {{ $labels.home }} on {{ $labels.instance }}
            were ended with the reason {{ $labels.end_reason }} within an hour. Either Hermes is
            killed again and again, or a reaper is wrong.""",
        dashboard=Dashboard.HOST,
    ),
    Alert(
        name="HermesFalseReap",
        expression="max_over_time(home:hermes_reaper_reopened:increase1h[10m]) > 0",
        hold="1m",
        severity=Severity.CRITICAL,
        summary="The agent reaped a session that was alive.",
        description="""
            {{ $value }} session(s) of home {{ $labels.home }} on {{ $labels.instance }} were reaped
            as proven dead, but a process that was there wrote to them afterwards. The agent
            reopened them. It reaps nothing more in this home until a person runs hermes-exporter
            reap --yes.""",
        dashboard=Dashboard.HOST,
    ),
    Alert(
        name="HermesWrittenAfterEnd",
        expression="max_over_time(home:hermes_sessions_written_after_end:increase6h[10m]) > 0",
        hold="15m",
        severity=Severity.WARNING,
        summary="Sessions of a Hermes home are written to after their end.",
        description="""
            {{ $value }} more session(s) of home {{ $labels.home }} on {{ $labels.instance }} than
            six hours ago have messages newer than their end ({{ $labels.end_reason }}): they were
            ended while still in use.""",
        dashboard=Dashboard.HOST,
    ),
    Alert(
        name="HermesReaperBreakerOpen",
        expression="max_over_time(hermes_reaper_breaker_open[5m]) == 1",
        hold="10m",
        severity=Severity.WARNING,
        summary="The reaper has stopped itself and waits for a reap by hand.",
        description="""
            The reaper of home {{ $labels.home }} on {{ $labels.instance }} ends nothing until a
            person runs hermes-exporter reap --yes. Either a session that was proven dead became
            active again, or the run journal was lost. hermes-exporter status says which.""",
        dashboard=Dashboard.HOST,
    ),
    Alert(
        name="HermesMarathonOverLimit",
        expression='max_over_time(hermes_sessions_marathon{level="over"}[5m]) > 0',
        hold="1h",
        severity=Severity.WARNING,
        summary="Open sessions of a Hermes home have too many messages.",
        description="""
            {{ $value }} open session(s) of home {{ $labels.home }} on {{ $labels.instance }} have
            had more messages than marathon.max_messages for an hour. Each further turn is slow and
            costly.""",
        dashboard=Dashboard.HOST,
    ),
    # A session that died in the middle of a run keeps it: so only where tools are being called.
    Alert(
        name="HermesToolErrorStreak",
        expression="""
            max_over_time(hermes_tool_error_streak_max[5m]) >= 10
            and on (job, instance, home)
            sum by (job, instance, home) (increase(hermes_tool_calls_total[15m])) > 0
            """,
        hold="10m",
        severity=Severity.WARNING,
        summary="A Hermes session gets one tool error after another.",
        description="""
            A session of home {{ $labels.home }} on {{ $labels.instance }} has had {{ $value }}
            failed tool calls in a row and continues.""",
        dashboard=Dashboard.HOST,
    ),
    Alert(
        name="HermesToolRepeatStreak",
        expression="""
            max_over_time(hermes_tool_repeat_streak_max[5m]) >= 50
            and on (job, instance, home)
            sum by (job, instance, home) (increase(hermes_tool_calls_total[15m])) > 0
            """,
        hold="10m",
        severity=Severity.WARNING,
        summary="A Hermes session calls the same tool again and again.",
        description="""
            A session of home {{ $labels.home }} on {{ $labels.instance }} has called one tool
            {{ $value }} times in a row and continues.""",
        dashboard=Dashboard.HOST,
    ),
)
