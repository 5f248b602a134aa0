"""Can each home be read, and is its data safe?"""

from __future__ import annotations

from dashboards.alerts.alert import Alert, Dashboard, Severity

ALERTS = (
    Alert(
        name="HermesHomeUnreadable",
        expression="max_over_time(hermes_home_up[5m]) == 0",
        hold="10m",
        severity=Severity.WARNING,
        summary="A Hermes home cannot be read.",
        description="""
            The agent {{ $labels.instance }} cannot read the database of home {{ $labels.home }}.
            Leaks, growth and faults in it stay unseen, and nothing in it is reaped or pruned.""",
        dashboard=Dashboard.HOST,
    ),
    # A process that is just closing may show this for a moment, but not for two minutes.
    Alert(
        name="HermesPersistenceDead",
        expression="min_over_time(hermes_state_db_deleted_wal_holders[2m]) > 0",
        hold="1m",
        severity=Severity.CRITICAL,
        summary="Hermes processes write into a deleted file: their messages are not saved.",
        description="""
            {{ $value }} process(es) on {{ $labels.instance }} write the state.db of home
            {{ $labels.home }} through a deleted WAL. They look healthy, but every message since
            then is lost when they end.""",
        dashboard=Dashboard.HOST,
    ),
    Alert(
        name="HermesLocklessHolders",
        expression="min_over_time(hermes_state_db_lockless_holders[5m]) > 0",
        hold="5m",
        severity=Severity.WARNING,
        summary="Hermes processes have lost their locks on their database.",
        description="""
            {{ $value }} process(es) on {{ $labels.instance }} use the state.db of home
            {{ $labels.home }} without a lock on it. The next careless program that opens the
            database can make them lose all they write. The agent does not write to the database
            while this lasts.""",
        dashboard=Dashboard.HOST,
    ),
    Alert(
        name="HermesDatabaseCorrupt",
        expression="max_over_time(hermes_state_db_integrity_ok[10m]) == 0",
        hold="5m",
        severity=Severity.CRITICAL,
        summary="The database of a Hermes home is damaged.",
        description="""
            The state.db of home {{ $labels.home }} on {{ $labels.instance }} is damaged. Hermes may
            keep running and lose what it writes. Copy the files before anything else.""",
        dashboard=Dashboard.HOST,
    ),
    # A WAL never shrinks after a checkpoint: Hermes writes it again from its beginning. So size
    # alone is no fault; a WAL that is large and still grows is not checkpointed.
    Alert(
        name="HermesWalGrowing",
        expression="""
            max_over_time(hermes_disk_bytes{kind="state_wal"}[5m]) > 256 * 1024 * 1024
            and
            max_over_time(hermes_disk_bytes{kind="state_wal"}[5m])
              - min_over_time(hermes_disk_bytes{kind="state_wal"}[1h]) > 32 * 1024 * 1024
            """,
        hold="15m",
        severity=Severity.WARNING,
        summary="The write-ahead log of a Hermes database keeps growing.",
        description="""
            The WAL of home {{ $labels.home }} on {{ $labels.instance }} has
            {{ $value | humanize1024 }}B and still grows. A reader that never ends its transaction
            prevents the checkpoint.""",
        dashboard=Dashboard.HOST,
    ),
)
