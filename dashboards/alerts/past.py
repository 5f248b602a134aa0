"""Alerts that compare today with days ago.

Such queries cost more and are not urgent, so they run less often.
"""

from __future__ import annotations

from dashboards.alerts.alert import Alert, Dashboard, Severity

ALERTS = (
    # Upgraded: this version was not there two days ago, when the home was.
    Alert(
        name="HermesLeakRateUp",
        expression="""
            (
              avg_over_time(home:hermes_sessions_leaked:increase1h[6h])
                > 2 * avg_over_time(home:hermes_sessions_leaked:increase1h[1d] offset 2d) + 1
            )
            * on (job, instance, home) group_right ()
            (
              max_over_time(hermes_agent_info[10m])
                unless on (job, instance, home, version)
              max_over_time(hermes_agent_info[10m] offset 2d)
                and on (job, instance, home)
              max_over_time(hermes_agent_info[10m] offset 2d)
            )
            """,
        hold="30m",
        severity=Severity.WARNING,
        summary="A Hermes home leaks more sessions since it was upgraded.",
        description="""
            Home {{ $labels.home }} on {{ $labels.instance }}, upgraded to Hermes
            {{ $labels.version }} in the last two days, leaks {{ printf "%.1f" $value }} sessions an
            hour: more than twice as many as before.""",
        dashboard=Dashboard.HOST,
    ),
    # The same item was the oldest, and old enough for its policy, a week ago.
    # Where the clean-up by age is on, or where items of this policy were taken within the week, by
    # thresholds or by a person: the oldest would have gone first.
    Alert(
        name="HermesRetentionInert",
        expression="""
            max_over_time(hermes_retention_eligible[10m]) > 0
            and max_over_time(hermes_retention_eligible[10m] offset 7d) > 0
            and max_over_time(hermes_retention_oldest_timestamp_seconds[10m])
              == max_over_time(hermes_retention_oldest_timestamp_seconds[10m] offset 7d)
            and on (job, instance, home, policy) (
              (
                max_over_time(hermes_retention_eligible[10m]) > 0
                and on (job, instance, home) max_over_time(hermes_prune_by_age[10m]) == 1
              )
              or
              (
                max_over_time(hermes_prune_deleted_total[10m])
                  - max_over_time(hermes_prune_deleted_total[10m] offset 7d)
              ) > 0
            )
            """,
        hold="1h",
        severity=Severity.WARNING,
        summary="Retention is configured, but old items stay.",
        description="""
            {{ $value }} item(s) of home {{ $labels.home }} on {{ $labels.instance }} are old enough
            for the policy {{ $labels.policy }}, the oldest for more than a week.""",
        dashboard=Dashboard.HOST,
    ),
)
