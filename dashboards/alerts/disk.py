"""Disks that fill, and a pruner that cannot keep up."""

from __future__ import annotations

from dashboards.alerts.alert import Alert, Dashboard, Severity

ALERTS = (
    # Level and trend: 2 % above the high watermark, at which the agent starts to prune, and full
    # within a day at the pace of the last hours. Without a watermark: 92 % used.
    Alert(
        name="HermesDiskFullSoon",
        expression="""
            (
              max_over_time(home:hermes_filesystem_avail_bytes:ratio[10m])
                < on (job, instance, home)
              (
                0.98 - max by (job, instance, home) (
                  max_over_time(hermes_prune_threshold_high{threshold="disk_used"}[10m])
                )
                  or 0 * max_over_time(home:hermes_filesystem_avail_bytes:ratio[10m]) + 0.08
              )
            )
            and predict_linear(home:hermes_filesystem_avail_bytes:min[6h], 86400) < 0
            and count_over_time(home:hermes_filesystem_avail_bytes:min[6h]) >= 60
            """,
        hold="15m",
        severity=Severity.CRITICAL,
        summary="The filesystem of a Hermes home will be full within a day.",
        description="""
            The filesystem of home {{ $labels.home }} on {{ $labels.instance }} has only
            {{ $value | humanizePercentage }} left. At the pace of the last hours it is full within
            24 hours. On a full disk Hermes saves nothing.""",
        dashboard=Dashboard.HOST,
    ),
    # Once per filesystem, and within five minutes: two of them here, two of `for`, one to scan and
    # to scrape. A filesystem that fills needs no longer window.
    Alert(
        name="HermesDiskNearlyFull",
        expression="""
            min by (job, instance, filesystem) (
              max_over_time(hermes_filesystem_avail_bytes[2m])
                / max_over_time(hermes_filesystem_size_bytes[2m])
            ) < 0.03
            """,
        hold="2m",
        severity=Severity.CRITICAL,
        summary="The filesystem of a Hermes home is nearly full.",
        description="""
            A filesystem with Hermes homes on {{ $labels.instance }} ({{ $labels.filesystem }}) has
            only {{ $value | humanizePercentage }} left. The next burst of writes can fill it, and
            Hermes then loses what it writes.""",
        dashboard=Dashboard.HOST,
        of_home=False,
    ),
    Alert(
        name="HermesHomeGrowsFast",
        expression="max_over_time(home:hermes_disk_bytes:delta6h[10m]) > 2.5 * 1024 * 1024 * 1024",
        hold="30m",
        severity=Severity.WARNING,
        summary="A Hermes home grows by more than 10 GiB a day.",
        description="""
            Home {{ $labels.home }} on {{ $labels.instance }} grew by {{ $value | humanize1024 }}B
            in the last six hours. The usual cause is a loop of failures.""",
        dashboard=Dashboard.HOST,
    ),
    # Not for `cooldown` and `trash`, which pass by themselves (after trash.min_keep at the latest),
    # nor for `no_help` and `caps`, which have their own alerts (HermesPruneDidNotHelp,
    # HermesPruneCapped), nor for what other homes are asked for: they say by themselves.
    Alert(
        name="HermesPruneThresholdUnreachable",
        expression="""
            max_over_time(
              hermes_prune_unreachable_bytes{reason!~"cooldown|trash|no_help|caps|other_homes"}[10m]
            ) > 0
            and on (job, instance, home, threshold)
            max_over_time(hermes_prune_pressure[10m]) == 1
            """,
        hold="30m",
        severity=Severity.WARNING,
        summary="The policies cannot free as much as a threshold demands.",
        description="""
            {{ $value | humanize1024 }}B above the low watermark of {{ $labels.threshold }} of home
            {{ $labels.home }} on {{ $labels.instance }} cannot be freed by any policy (reason:
            {{ $labels.reason }}).""",
        dashboard=Dashboard.HOST,
    ),
    # The home's journal keeps this count, and it starts at 0: compare it with an hour ago. If there
    # was no count then, e.g. because the journal could not be read, that is no rise.
    Alert(
        name="HermesPruneReborn",
        expression="""
            (
              max by (job, instance, home) (max_over_time(hermes_prune_reborn_total[10m]))
                -
              max by (job, instance, home) (
                max_over_time(hermes_prune_reborn_total[10m] offset 1h)
              )
            ) > 0
            """,
        hold="1m",
        severity=Severity.WARNING,
        summary="A pruned session was still in use.",
        description="""
            Hermes continued {{ $value }} session(s) of home {{ $labels.home }} on
            {{ $labels.instance }} within the last hour after they had been pruned. The agent
            restored their past from the trash, so nothing was lost.""",
        dashboard=Dashboard.HOST,
    ),
    # The newest run of the last day did not succeed, and none has succeeded since.
    Alert(
        name="HermesPruneFailing",
        expression="""
            (
              max by (job, instance, home) (
                max_over_time(
                  hermes_prune_last_run_timestamp_seconds{outcome=~"failed|partial"}[10m]
                )
              )
                >
              (
                max by (job, instance, home) (
                  max_over_time(hermes_prune_last_run_timestamp_seconds{outcome="done"}[10m])
                )
                  or
                0 * max by (job, instance, home) (
                  max_over_time(
                    hermes_prune_last_run_timestamp_seconds{outcome=~"failed|partial"}[10m]
                  )
                )
              )
            ) > time() - 86400
            """,
        hold="30m",
        severity=Severity.WARNING,
        summary="The last prune of a Hermes home did not succeed.",
        description="""
            The prune of home {{ $labels.home }} on {{ $labels.instance }} at
            {{ $value | humanizeTimestamp }} failed or was only partly done, and none has succeeded
            since.""",
        dashboard=Dashboard.HOST,
    ),
    Alert(
        name="HermesPruneBlocked",
        expression="""
            max_over_time(hermes_prune_blocked[10m]) == 1
            and on (job, instance, home)
            max_over_time(hermes_prune_enforcing[10m]) == 1
            and on (job, instance, home)
            max by (job, instance, home) (max_over_time(hermes_prune_pressure[10m])) == 1
            """,
        hold="30m",
        severity=Severity.WARNING,
        summary="A prune is needed, but the agent refuses to run it.",
        description="""
            Home {{ $labels.home }} on {{ $labels.instance }} is above a threshold, but the agent
            prunes nothing (reason: {{ $labels.reason }}).""",
        dashboard=Dashboard.HOST,
    ),
    # A backlog drains by itself, so this is not urgent. But a mistake in a configuration file shows
    # here first: what it took is in the trash.
    Alert(
        name="HermesPruneCapped",
        expression="""
            max_over_time(hermes_prune_capped_items[10m]) > 0
            and on (job, instance, home)
            max_over_time(hermes_prune_enforcing[10m]) == 1
            """,
        hold="30m",
        severity=Severity.WARNING,
        summary="A prune is larger than the caps of a day.",
        description="""
            {{ $value }} item(s) of home {{ $labels.home }} on {{ $labels.instance }} wait because
            automatic runs have taken what prune.caps allows in 24 hours.""",
        dashboard=Dashboard.HOST,
    ),
    # Above its high watermark for an hour, although the agent enforces and a run was made. The
    # agent then skips this threshold for a day. Not for bytes that will be free without another
    # run: in trash that is emptied when it is old enough, or left for the next day by the caps.
    Alert(
        name="HermesPruneDidNotHelp",
        expression="""
            (
              max_over_time(hermes_prune_threshold_value[10m])
                / max_over_time(hermes_prune_threshold_high[10m])
            ) > 1
            and on (job, instance, home, threshold) min_over_time(hermes_prune_pressure[1h]) == 1
            and on (job, instance, home, threshold)
            max_over_time(hermes_prune_pressure[10m] offset 50m) == 1
            and on (job, instance, home) max_over_time(hermes_prune_enforcing[10m]) == 1
            and on (job, instance, home)
            time() - max by (job, instance, home) (
              max_over_time(hermes_prune_last_run_timestamp_seconds{outcome=~"done|partial"}[10m])
            ) < 86400
            unless on (job, instance, home, threshold)
            max_over_time(hermes_prune_unreachable_bytes{reason=~"trash|caps"}[10m]) > 0
            """,
        hold="15m",
        severity=Severity.WARNING,
        summary="A prune ran and did not help.",
        description="""
            {{ $labels.threshold }} of home {{ $labels.home }} on {{ $labels.instance }} is at
            {{ $value | humanizePercentage }} of its high watermark although a prune ran within the
            last day.""",
        dashboard=Dashboard.HOST,
    ),
)
