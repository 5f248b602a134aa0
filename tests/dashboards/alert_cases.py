"""For each alert: what makes it fire and when, what it then says, and what is not quite enough.

All that is expected is written down here by hand; nothing is taken from the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.dashboards.promtool import Series, Values, ramp, run

MIB = 1024**2
GIB = 1024**3
DAY = 24 * 60

AGENT = 'job="hermes-exporter",instance="web1:10749"'
HOME = f'{AGENT},home="ann/dev"'
AGENT_LABELS = {"job": "hermes-exporter", "instance": "web1:10749"}
HOME_LABELS = {**AGENT_LABELS, "home": "ann/dev"}
AGENT_PAGE = "/d/hermes-agent?var-job=hermes-exporter&var-instance=web1%3A10749"
HOST_PAGE = "/d/hermes-host?var-job=hermes-exporter&var-instance=web1%3A10749&var-home=ann%2Fdev"
FLEET_PAGE = "/d/hermes-fleet"


@dataclass(frozen=True, slots=True)
class Quiet:
    """Series at which the alert does not fire, from minute `since` to their end."""

    why: str
    series: Series
    since: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """`first` is the minute at which the alert first fires; the minutes before it is pending."""

    alert: str
    severity: str
    series: Series
    first: int
    labels: dict[str, str]
    page: str
    summary: str
    description: str
    quiet: tuple[Quiet, ...]
    step: int = 1
    """Minutes from one sample to the next."""
    runbook: str = ""
    """The link, if it is not that of the agent which the alert is about."""
    scraped: bool = True
    """A failed scrape takes the series away for a moment; Prometheus's own stay."""
    annotations: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "annotations",
            {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": self.runbook
                or f"http://{self.labels['instance']}/runbooks/{self.alert}",
                "dashboard_url": self.page,
            },
        )


def _agents(count: int) -> list[str]:
    return [f'up{{job="hermes-exporter",instance="web{n}:10749"}}' for n in range(count)]


def _vanishing(count: int, gone: int) -> Series:
    """So many agents are scraped for an hour and a half; some are targets no more after that."""
    stays, leaves = run((130, 1)), run((90, 1), (1, "stale"))
    return {name: leaves if n < gone else stays for n, name in enumerate(_agents(count))}


UP = {f"hermes_home_up{{{HOME}}}": run((200, 1))}
UNKNOWN = f'hermes_sessions_open_by_verdict{{{HOME},source="cli",verdict="unknown"}}'
ORPHANS = f'hermes_sessions_ended{{{HOME},source="tui",end_reason="ws_orphan_reap"}}'

AGENTS = (
    Case(
        alert="HermesAgentDown",
        severity="warning",
        series={
            f"up{{{AGENT}}}": run((10, 1), (30, 0)),
            'up{job="eu/hermes-exporter",instance="web-3:1"}': run((40, 1)),
        },
        runbook="http://web-3:1/runbooks/HermesAgentDown",
        first=20,
        labels=AGENT_LABELS,
        page=AGENT_PAGE,
        summary="A hermes-exporter agent does not answer.",
        description="The agent web1:10749 (hermes-exporter) answered only 0% of the scrapes in the "
        "last 10 minutes. The homes on that host are not watched.",
        quiet=(
            Quiet("five scrapes failed", {f"up{{{AGENT}}}": run((20, 1), (5, 0), (20, 1))}),
            Quiet("it is another job's", {'up{job="node",instance="web-1:9100"}': run((40, 0))}),
            Quiet("the target is gone", {f"up{{{AGENT}}}": run((10, 1), (4, 0), (1, "stale"))}),
        ),
        scraped=False,
    ),
    Case(
        alert="HermesAgentAbsent",
        severity="critical",
        series={'up{job="node",instance="web-1:9100"}': run((40, 1))},
        runbook="dashboards/runbooks/HermesAgentAbsent.md",
        first=10,
        labels={},
        page=FLEET_PAGE,
        summary="Prometheus finds no hermes-exporter agent at all.",
        description="No target has hermes-exporter in its job name, and there is no metric of an "
        "agent. No alert about any Hermes home can fire.",
        quiet=(
            Quiet("one is down", {f"up{{{AGENT}}}": run((40, 0))}),
            Quiet(
                "one in textfile mode",
                {'hermes_exporter_build_info{job="node",instance="web-1:9100"}': run((40, 1))},
            ),
            Quiet("not for long enough", {f"up{{{AGENT}}}": [*run((9, "_")), *run((40, 1))]}),
        ),
        scraped=False,
    ),
    Case(
        alert="HermesAgentsVanished",
        severity="warning",
        series=_vanishing(10, 3),
        runbook="http://web3:10749/runbooks/HermesAgentsVanished",
        first=105,
        labels={"job": "hermes-exporter"},
        page=FLEET_PAGE,
        summary="Many hermes-exporter agents are no longer targets of Prometheus.",
        description="3 agents of job hermes-exporter were scraped an hour ago and are not scraped "
        "now. They are no longer targets, so HermesAgentDown cannot fire for them.",
        quiet=(
            Quiet("two of ten", _vanishing(10, 2)),
            Quiet("three of fifteen, a fifth", _vanishing(15, 3)),
        ),
        scraped=False,
    ),
    Case(
        alert="HermesScanStale",
        severity="warning",
        series={
            f"hermes_exporter_scan_timestamp_seconds{{{HOME}}}": [
                *ramp(10, 60, 60),
                *run((30, 600)),
            ]
        },
        first=31,
        labels=HOME_LABELS,
        page=AGENT_PAGE,
        summary="A Hermes home has not been scanned for a long time.",
        description="The agent web1:10749 finished its last scan of home ann/dev 21m 0s ago. What "
        "it shows of that home is as old as that.",
        quiet=(
            Quiet(
                "always a quarter of an hour ago",
                {f"hermes_exporter_scan_timestamp_seconds{{{HOME}}}": ramp(40, -900, 60)},
            ),
        ),
    ),
    Case(
        alert="HermesCollectorFailing",
        severity="warning",
        series={
            f'hermes_exporter_collector_success{{{AGENT},collector="disk"}}': run((10, 1), (30, 0)),
            f'hermes_exporter_collector_success{{{AGENT},collector="homes"}}': run((40, 1)),
        },
        first=30,
        labels={**AGENT_LABELS, "collector": "disk"},
        page=AGENT_PAGE,
        summary="A collector of a hermes-exporter agent fails.",
        description="The collector disk of the agent web1:10749 always fails. Its metrics are "
        "missing, and alerts on them cannot fire.",
        quiet=(
            Quiet(
                "every now and then",
                {
                    f'hermes_exporter_collector_success{{{AGENT},collector="disk"}}': run(
                        *[(8, 0), (1, 1)] * 5
                    )
                },
            ),
        ),
    ),
    Case(
        alert="HermesConfigReloadFailed",
        severity="warning",
        series={f"hermes_exporter_config_last_reload_successful{{{AGENT}}}": run((10, 1), (30, 0))},
        first=25,
        labels=AGENT_LABELS,
        page=AGENT_PAGE,
        summary="A hermes-exporter agent could not read its new configuration.",
        description="The agent web1:10749 was told to reload its configuration, but the file has "
        "an error. The agent keeps the old settings.",
        quiet=(
            Quiet(
                "mended within ten minutes",
                {
                    f"hermes_exporter_config_last_reload_successful{{{AGENT}}}": run(
                        (10, 1), (9, 0), (30, 1)
                    )
                },
            ),
        ),
    ),
    Case(
        alert="HermesTooManySeries",
        severity="warning",
        series={
            f"hermes_exporter_series{{{AGENT}}}": run((10, 400), (40, 1261)),
            f"hermes_home_up{{{HOME}}}": run((50, 1)),
            f'hermes_home_up{{{AGENT},home="default"}}': run((50, 0)),
        },
        first=25,
        labels=AGENT_LABELS,
        page=AGENT_PAGE,
        summary="A hermes-exporter agent exports too many series.",
        description="The agent web1:10749 exports 1261 series. The limit is 60, plus 600 for each "
        "home. Many such agents would overload Prometheus.",
        quiet=(
            Quiet(
                "just within the budget",
                {
                    f"hermes_exporter_series{{{AGENT}}}": run((50, 660)),
                    f"hermes_home_up{{{HOME}}}": run((50, 1)),
                },
            ),
            Quiet("without any home", {f"hermes_exporter_series{{{AGENT}}}": run((50, 60))}),
        ),
    ),
)

HOMES = (
    Case(
        alert="HermesHomeUnreadable",
        severity="warning",
        series={f"hermes_home_up{{{HOME}}}": run((10, 1), (40, 0))},
        first=25,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="A Hermes home cannot be read.",
        description="The agent web1:10749 cannot read the database of home ann/dev. Leaks, growth "
        "and faults in it stay unseen, and nothing in it is reaped or pruned.",
        quiet=(
            Quiet(
                "read every now and then",
                {f"hermes_home_up{{{HOME}}}": run(*[(4, 0), (1, 1)] * 8)},
            ),
        ),
    ),
    Case(
        alert="HermesPersistenceDead",
        severity="critical",
        series={f"hermes_state_db_deleted_wal_holders{{{HOME}}}": run((10, 0), (20, 1))},
        first=13,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="Hermes processes write into a deleted file: their messages are not saved.",
        description="1 process(es) on web1:10749 write the state.db of home ann/dev through a "
        "deleted WAL. They look healthy, but every message since then is lost when they end.",
        quiet=(
            Quiet(
                "a process was just closing",
                {
                    f"hermes_state_db_deleted_wal_holders{{{HOME}}}": run(
                        (10, 0), (2, 1), (20, 0), (1, 3), (10, 0)
                    )
                },
            ),
        ),
    ),
    Case(
        alert="HermesLocklessHolders",
        severity="warning",
        series={f"hermes_state_db_lockless_holders{{{HOME}}}": run((10, 0), (30, 2))},
        first=20,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="Hermes processes have lost their locks on their database.",
        description="2 process(es) on web1:10749 use the state.db of home ann/dev without a lock "
        "on it. The next careless program that opens the database can make them lose all they "
        "write. The agent does not write to the database while this lasts.",
        quiet=(
            Quiet(
                "for moments only",
                {f"hermes_state_db_lockless_holders{{{HOME}}}": run(*[(4, 1), (1, 0)] * 8)},
            ),
        ),
    ),
    Case(
        alert="HermesDatabaseCorrupt",
        severity="critical",
        series={f"hermes_state_db_integrity_ok{{{HOME}}}": run((10, 1), (40, 0))},
        first=25,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="The database of a Hermes home is damaged.",
        description="The state.db of home ann/dev on web1:10749 is damaged. Hermes may keep "
        "running and lose what it writes. Copy the files before anything else.",
        quiet=(
            Quiet(
                "repaired at once",
                {f"hermes_state_db_integrity_ok{{{HOME}}}": run((10, 1), (9, 0), (40, 1))},
            ),
        ),
    ),
    Case(
        alert="HermesWalGrowing",
        severity="warning",
        series={
            f'hermes_disk_bytes{{{HOME},kind="state_wal"}}': [
                *run((10, 200 * MIB)),
                *ramp(60, 202 * MIB, 2 * MIB),
            ]
        },
        first=53,
        labels={**HOME_LABELS, "kind": "state_wal"},
        page=HOST_PAGE,
        summary="The write-ahead log of a Hermes database keeps growing.",
        description="The WAL of home ann/dev on web1:10749 has 288MiB and still grows. A reader "
        "that never ends its transaction prevents the checkpoint.",
        quiet=(
            Quiet(
                "large since long, but written anew from its beginning",
                {f'hermes_disk_bytes{{{HOME},kind="state_wal"}}': run((100, GIB))},
            ),
            Quiet(
                "grows, but is not large",
                {
                    f'hermes_disk_bytes{{{HOME},kind="state_wal"}}': [
                        *ramp(40, 96 * MIB, 4 * MIB),
                        *run((60, 256 * MIB)),
                    ]
                },
            ),
            Quiet(
                "grows too slowly",
                {f'hermes_disk_bytes{{{HOME},kind="state_wal"}}': ramp(100, 300 * MIB, MIB / 2)},
            ),
        ),
    ),
)


def _upgrade(version_after: str, reaped_per_hour_after: float) -> Series:
    """Two days at one leak an hour, each reaped; then another Hermes for eight hours."""
    before, after, per_hour = 50 * 12, 8 * 12, 12
    reaped = [n / per_hour for n in range(before)]
    reaped += [reaped[-1] + n * reaped_per_hour_after / per_hour for n in range(1, after + 1)]
    info = f"hermes_agent_info{{{HOME},version="
    series = {
        f"hermes_home_up{{{HOME}}}": run((before + after, 1)),
        f'hermes_reaper_reaped_total{{{HOME},source="cli"}}': [repr(float(int(n))) for n in reaped],
    }
    if version_after == "0.18.2":
        return {**series, f'{info}"0.18.2"}}': run((before + after, 1))}
    return {
        **series,
        f'{info}"0.18.2"}}': run((before, 1), (1, "stale")),
        f'{info}"{version_after}"}}': run((before, "_"), (after, 1)),
    }


def _leaked(leaked: object, opened: object) -> Series:
    return {
        f'hermes_sessions_leaked{{{HOME},source="cli",cause="mid_turn"}}': run(
            (10, 0), (80, leaked)
        ),
        f'hermes_sessions_open{{{HOME},source="cli"}}': run((90, opened)),
    }


def _reaped(per_minute: float) -> Series:
    return {
        **UP,
        f'hermes_reaper_reaped_total{{{HOME},source="cli"}}': [
            *run((70, 7)),
            *ramp(80, 7 + per_minute, per_minute),
        ],
    }


_UNJUDGED = "Many sessions of a Hermes home stay without a verdict."
_NO_CHATS = {
    f'hermes_sessions_overdue{{{HOME},reason="{reason}"}}': run((320, 0))
    for reason in ("chat", "unknown_program")
}


def _overdue(reason: str) -> str:
    return f'hermes_sessions_overdue{{{HOME},reason="{reason}"}}'


def _unjudged(reason: str) -> str:
    return (
        "25 open session(s) of home ann/dev on web1:10749 have had no verdict for a day beyond the "
        f"time that reaper.presume_after asks (reason: {reason}). They are neither shown as leaks "
        "nor ended. hermes-exporter status says what they wait for."
    )


def _streak(name: str, length: int, *, calls: float) -> Series:
    return {
        f"{name}{{{HOME}}}": run((10, 0), (30, length)),
        f'hermes_tool_calls_total{{{HOME},source="cli"}}': ramp(40, 100, calls),
    }


SESSIONS = (
    Case(
        alert="HermesLeakRateUp",
        severity="warning",
        series=_upgrade("0.19.0", 10),
        first=50 * 60 + 140,
        step=5,
        labels={**HOME_LABELS, "version": "0.19.0"},
        page=HOST_PAGE,
        summary="A Hermes home leaks more sessions since it was upgraded.",
        description="Home ann/dev on web1:10749, upgraded to Hermes 0.19.0 in the last two days, "
        "leaks 3.9 sessions an hour: more than twice as many as before.",
        quiet=(
            Quiet("as many leaks, but no upgrade", _upgrade("0.18.2", 10)),
            Quiet("upgraded, and three leaks an hour instead of one", _upgrade("0.19.0", 2.9)),
        ),
    ),
    Case(
        alert="HermesLeakRatioHigh",
        severity="warning",
        series=_leaked(60, 100),
        first=70,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="Most open sessions of a Hermes home are dead.",
        description="60% of the open sessions of home ann/dev on web1:10749 are dead: no process "
        "runs them, and no process ends them.",
        quiet=(
            Quiet("just one half", _leaked(50, 100)),
            Quiet("most, but few", _leaked(49, 50)),
            Quiet("none is open", _leaked(0, 0)),
        ),
    ),
    Case(
        alert="HermesReaperBlind",
        severity="warning",
        series={
            f"hermes_home_up{{{HOME}}}": run((100, 1)),
            f'hermes_exporter_blind{{{HOME},reason="hidepid"}}': run((2, "_"), (98, 1)),
            UNKNOWN: run((100, 3)),
        },
        first=370,
        step=5,
        labels={**HOME_LABELS, "reason": "hidepid"},
        page=HOST_PAGE,
        summary="The agent could not judge some sessions for hours.",
        description="The agent web1:10749 cannot see all of home ann/dev (reason: hidepid), and 3 "
        "open session(s) have the verdict unknown. Unknown sessions are never reaped.",
        quiet=(
            Quiet(
                "nothing is unknown for it",
                {
                    f'hermes_exporter_blind{{{HOME},reason="hidepid"}}': run((100, 1)),
                    UNKNOWN: run((100, 0)),
                },
            ),
            Quiet(
                "the system offers no more",
                {
                    f'hermes_exporter_blind{{{HOME},reason="platform"}}': run((100, 1)),
                    UNKNOWN: run((100, 3)),
                },
            ),
        ),
    ),
    Case(
        alert="HermesSessionsUnjudged",
        severity="warning",
        series={_overdue("stopped"): run((10, 0), (310, 25)), **_NO_CHATS},
        first=10 * 5 + DAY,
        step=5,
        labels={**HOME_LABELS, "reason": "stopped"},
        page=HOST_PAGE,
        summary=_UNJUDGED,
        description=_unjudged("stopped"),
        quiet=(
            Quiet("not so many", {_overdue("server"): run((400, 19))}),
            Quiet("for less than a day", {_overdue("blind"): run((10, 0), (200, 99), (100, 0))}),
            Quiet(
                "beside a chat, and the agent still has to watch for three days",
                {_overdue("chat"): run((10, 0), (800, 99))},
            ),
        ),
    ),
    Case(
        alert="HermesSessionsUnjudged",
        severity="warning",
        series={_overdue("chat"): run((10, 0), (1200, 25))},
        first=10 * 5 + 4 * DAY,
        step=5,
        labels={**HOME_LABELS, "reason": "chat"},
        page=HOST_PAGE,
        summary=_UNJUDGED,
        description=_unjudged("chat"),
        quiet=(),
    ),
    Case(
        alert="HermesReapStorm",
        severity="warning",
        series=_reaped(5),
        first=115,
        labels={**HOME_LABELS, "end_reason": "reaped"},
        page=HOST_PAGE,
        summary="Very many sessions of a Hermes home were reaped within an hour.",
        description="230 sessions of home ann/dev on web1:10749 were ended with the reason reaped "
        "within an hour. Either Hermes is killed again and again, or a reaper is wrong.",
        quiet=(
            Quiet("not quite so many", _reaped(3.3)),
            Quiet(
                "a backlog of long ago is drained",
                {
                    **_reaped(5),
                    f'hermes_sessions_leaked{{{HOME},source="cli",cause="empty"}}': [
                        *run((70, 900)),
                        *ramp(80, 895, -5),
                    ],
                },
            ),
        ),
    ),
    Case(
        alert="HermesReapStorm",
        severity="warning",
        series={
            **UP,
            ORPHANS: run((80, "_"), (40, 201)),
        },
        first=85,
        labels={**HOME_LABELS, "end_reason": "ws_orphan_reap"},
        page=HOST_PAGE,
        summary="Very many sessions of a Hermes home were reaped within an hour.",
        description="201 sessions of home ann/dev on web1:10749 were ended with the reason "
        "ws_orphan_reap within an hour. Either Hermes is killed again and again, or a reaper is "
        "wrong.",
        quiet=(
            Quiet(
                "so many, but by their users",
                {
                    **UP,
                    f'hermes_sessions_ended{{{HOME},source="cli",end_reason="cli_close"}}': run(
                        (80, 10), (40, 400)
                    ),
                },
            ),
            Quiet(
                "long before the home was first seen",
                {
                    **UP,
                    ORPHANS: run((120, 900)),
                },
            ),
        ),
    ),
    Case(
        alert="HermesFalseReap",
        severity="critical",
        series={
            **UP,
            f'hermes_reaper_reopened_total{{{HOME},source="cli",proof="proven"}}': run(
                (80, "_"), (40, 1)
            ),
        },
        first=81,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="The agent reaped a session that was alive.",
        description="1 session(s) of home ann/dev on web1:10749 were reaped as proven dead, but a "
        "process that was there wrote to them afterwards. The agent reopened them. It reaps "
        "nothing more in this home until a person runs hermes-exporter reap --yes.",
        quiet=(
            Quiet(
                "it was presumed dead, which may be wrong and heals itself",
                {
                    **UP,
                    f'hermes_reaper_reopened_total{{{HOME},source="cli",proof="presumed"}}': run(
                        (80, 0), (40, 1)
                    ),
                },
            ),
            Quiet(
                "long before Prometheus first asked",
                {**UP, f'hermes_reaper_reopened_total{{{HOME},source="cli"}}': run((200, 4))},
            ),
            Quiet(
                "the counter was lost and begins anew",
                {
                    **UP,
                    f'hermes_reaper_reopened_total{{{HOME},source="cli"}}': run((100, 4), (100, 0)),
                },
            ),
            Quiet(
                "the agent could not be scraped for an hour",
                {
                    f"hermes_home_up{{{HOME}}}": run((80, 1), (60, "stale"), (80, 1)),
                    f'hermes_reaper_reopened_total{{{HOME},source="cli"}}': run(
                        (80, 4), (60, "stale"), (80, 4)
                    ),
                },
            ),
        ),
    ),
    Case(
        alert="HermesWrittenAfterEnd",
        severity="warning",
        series={
            f"hermes_home_up{{{HOME}}}": run((90, 1)),
            f'hermes_sessions_written_after_end{{{HOME},end_reason="ws_orphan_reap"}}': run(
                (80, "_"), (10, 2)
            ),
            f'hermes_sessions_written_after_end{{{HOME},end_reason="cli_close"}}': run((90, 5)),
        },
        first=80 * 5 + 15,
        step=5,
        labels={**HOME_LABELS, "end_reason": "ws_orphan_reap"},
        page=HOST_PAGE,
        summary="Sessions of a Hermes home are written to after their end.",
        description="2 more session(s) of home ann/dev on web1:10749 than six hours ago have "
        "messages newer than their end (ws_orphan_reap): they were ended while still in use.",
        quiet=(
            Quiet(
                "only old ones, of which some were pruned",
                {
                    f"hermes_home_up{{{HOME}}}": run((180, 1)),
                    f'hermes_sessions_written_after_end{{{HOME},end_reason="cli_close"}}': run(
                        (80, 5), (100, 3)
                    ),
                },
            ),
        ),
    ),
    Case(
        alert="HermesReaperBreakerOpen",
        severity="warning",
        series={f"hermes_reaper_breaker_open{{{HOME}}}": run((10, 0), (30, 1))},
        first=20,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="The reaper has stopped itself and waits for a reap by hand.",
        description="The reaper of home ann/dev on web1:10749 ends nothing until a person runs "
        "hermes-exporter reap --yes. Either a session that was proven dead became active again, or "
        "the run journal was lost. hermes-exporter status says which.",
        quiet=(
            Quiet(
                "closed again soon",
                {f"hermes_reaper_breaker_open{{{HOME}}}": run((10, 0), (4, 1), (30, 0))},
            ),
        ),
    ),
    Case(
        alert="HermesMarathonOverLimit",
        severity="warning",
        series={f'hermes_sessions_marathon{{{HOME},level="over"}}': run((10, 0), (80, 2))},
        first=70,
        labels={**HOME_LABELS, "level": "over"},
        page=HOST_PAGE,
        summary="Open sessions of a Hermes home have too many messages.",
        description="2 open session(s) of home ann/dev on web1:10749 have had more messages than "
        "marathon.max_messages for an hour. Each further turn is slow and costly.",
        quiet=(
            Quiet(
                "near the limit",
                {
                    f'hermes_sessions_marathon{{{HOME},level="near"}}': run((90, 5)),
                    f'hermes_sessions_marathon{{{HOME},level="over"}}': run((90, 0)),
                },
            ),
        ),
    ),
    Case(
        alert="HermesToolErrorStreak",
        severity="warning",
        series=_streak("hermes_tool_error_streak_max", 10, calls=1),
        first=20,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="A Hermes session gets one tool error after another.",
        description="A session of home ann/dev on web1:10749 has had 10 failed tool calls in a row "
        "and continues.",
        quiet=(
            Quiet("one fewer", _streak("hermes_tool_error_streak_max", 9, calls=1)),
            Quiet("it died so", _streak("hermes_tool_error_streak_max", 30, calls=0)),
        ),
    ),
    Case(
        alert="HermesToolRepeatStreak",
        severity="warning",
        series=_streak("hermes_tool_repeat_streak_max", 50, calls=1),
        first=20,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="A Hermes session calls the same tool again and again.",
        description="A session of home ann/dev on web1:10749 has called one tool 50 times in a row "
        "and continues.",
        quiet=(
            Quiet("one fewer", _streak("hermes_tool_repeat_streak_max", 49, calls=1)),
            Quiet("it died so", _streak("hermes_tool_repeat_streak_max", 90, calls=0)),
        ),
    ),
)


def _filesystem(avail: Values, high: float | None = None) -> Series:
    series = {
        f'hermes_filesystem_size_bytes{{{HOME},filesystem="0f1e2d3c"}}': run((len(avail), 10**11)),
        f'hermes_filesystem_avail_bytes{{{HOME},filesystem="0f1e2d3c"}}': avail,
    }
    if high is not None:
        mark = f'hermes_prune_threshold_high{{{HOME},threshold="disk_used"}}'
        series[mark] = run((len(avail), high))
    return series


def _two_homes(avail: Values) -> Series:
    """Two homes on one filesystem."""
    one = _filesystem(avail)
    return {**one, **{name.replace("ann/dev", "bob/dev"): each for name, each in one.items()}}


def _prune(
    *,
    pressure: Values,
    enforcing: int = 1,
    **more: Values,
) -> Series:
    """Series of a home whose transcripts are pruned; `more` have the same labels."""
    of = f'{HOME},threshold="transcripts"'
    length = len(pressure)
    return {
        f"hermes_prune_enforcing{{{HOME}}}": run((length, enforcing)),
        f"hermes_prune_pressure{{{of}}}": pressure,
        **{f"{name}{{{of}}}": values for name, values in more.items()},
    }


def _last_runs(length: int, **outcomes: float) -> Series:
    """When the last run of each outcome was, known from minute 10 on."""
    return {
        f'hermes_prune_last_run_timestamp_seconds{{{HOME},outcome="{outcome}"}}': run(
            (10, "_"), (length, moment)
        )
        for outcome, moment in outcomes.items()
    }


def _unreachable(amount: int, pressure: int, reason: str = "protected") -> Series:
    of = f'{HOME},threshold="transcripts",reason="{reason}"'
    return {
        f"hermes_prune_unreachable_bytes{{{of}}}": run((10, 0), (50, amount)),
        f'hermes_prune_pressure{{{HOME},threshold="transcripts"}}': run((60, pressure)),
        f'hermes_prune_pressure{{{HOME},threshold="disk_used"}}': run((60, 1)),
    }


def _blocked(*, pressure: int, enforcing: int, length: int = 50) -> Series:
    return {
        **_prune(pressure=run((60, pressure)), enforcing=enforcing),
        f'hermes_prune_blocked{{{HOME},reason="routing"}}': run((10, "_"), (length, 1)),
    }


def _capped(items: int, *, enforcing: int, length: int = 50) -> Series:
    return {
        f"hermes_prune_enforcing{{{HOME}}}": run((60, enforcing)),
        f"hermes_prune_capped_items{{{HOME}}}": run((10, 0), (length, items), (60, 0)),
    }


def _pruned(*, value: Values, pressure: Values, at: float) -> Series:
    return {
        **_prune(
            pressure=pressure,
            hermes_prune_threshold_value=value,
            hermes_prune_threshold_high=run((len(value), 2 * GIB)),
        ),
        **_last_runs(len(value), done=at),
    }


def _retention(
    oldest: Values, *, eligible: int, by_age: int = 0, deleted: Values | None = None
) -> Series:
    of = f'{HOME},policy="old_sessions"'
    return {
        f"hermes_retention_eligible{{{of}}}": run((len(oldest), eligible)),
        f"hermes_retention_oldest_timestamp_seconds{{{of}}}": oldest,
        f"hermes_prune_by_age{{{HOME}}}": run((len(oldest), by_age)),
        f"hermes_prune_deleted_total{{{of}}}": deleted or run((len(oldest), 40)),
    }


_FILLING = [repr(9e9 - 60e6 * (minute // 3)) for minute in range(90)]
_WEEK_AND_MORE = (7 * DAY + 120) // 8

DISK = (
    Case(
        alert="HermesDiskFullSoon",
        severity="critical",
        series=_filesystem(_FILLING, high=0.9),
        first=76,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="The filesystem of a Hermes home will be full within a day.",
        description="The filesystem of home ann/dev on web1:10749 has only 7.68% left. At the pace "
        "of the last hours it is full within 24 hours. On a full disk Hermes saves nothing.",
        quiet=(
            Quiet("little is left, but it stays so", _filesystem(run((100, 7e9)), high=0.9)),
            Quiet("it fills, but much is left", _filesystem(ramp(100, 12e9, -20e6), high=0.9)),
            Quiet("pruning begins later here", _filesystem(ramp(100, 7e9, -20e6), high=0.96)),
            Quiet("known for less than an hour", _filesystem(ramp(55, 7e9, -20e6), high=0.9)),
            Quiet("full in more than a day", _filesystem(ramp(100, 7.9e9, -4e6), high=0.9)),
        ),
    ),
    Case(
        alert="HermesDiskFullSoon",
        severity="critical",
        series=_filesystem(_FILLING),
        first=76,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="The filesystem of a Hermes home will be full within a day.",
        description="The filesystem of home ann/dev on web1:10749 has only 7.68% left. At the pace "
        "of the last hours it is full within 24 hours. On a full disk Hermes saves nothing.",
        quiet=(Quiet("it fills, but enough is left", _filesystem(ramp(100, 10.1e9, -20e6))),),
    ),
    Case(
        alert="HermesDiskNearlyFull",
        severity="critical",
        series=_two_homes(run((10, 5e9), (30, 2.9e9))),  # one alert: they share the filesystem
        first=14,
        labels={**AGENT_LABELS, "filesystem": "0f1e2d3c"},
        page=HOST_PAGE.partition("&var-home")[0],
        summary="The filesystem of a Hermes home is nearly full.",
        description="A filesystem with Hermes homes on web1:10749 (0f1e2d3c) has only 2.9% left. "
        "The next burst of writes can fill it, and Hermes then loses what it writes.",
        quiet=(Quiet("three of a hundred", _filesystem(run((10, 5e9), (30, 3e9)))),),
    ),
    Case(
        alert="HermesHomeGrowsFast",
        severity="warning",
        series={
            f'hermes_disk_bytes{{{HOME},kind="request_dumps"}}': run((80, GIB), (20, 4 * GIB)),
            f'hermes_disk_bytes{{{HOME},kind="logs"}}': run((100, GIB)),
        },
        first=80 * 5 + 30,
        step=5,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="A Hermes home grows by more than 10 GiB a day.",
        description="Home ann/dev on web1:10749 grew by 3GiB in the last six hours. The usual "
        "cause is a loop of failures.",
        quiet=(
            Quiet(
                "by just so much",
                {
                    f'hermes_disk_bytes{{{HOME},kind="logs"}}': run(
                        (80, GIB), (20, GIB + 5 * GIB // 2)
                    )
                },
            ),
            Quiet(
                "it was first seen so",
                {f'hermes_disk_bytes{{{HOME},kind="logs"}}': run((20, "_"), (80, 90 * GIB))},
            ),
        ),
    ),
    Case(
        alert="HermesPruneThresholdUnreachable",
        severity="warning",
        series=_unreachable(3 * GIB, 1),
        first=40,
        labels={**HOME_LABELS, "threshold": "transcripts", "reason": "protected"},
        page=HOST_PAGE,
        summary="The policies cannot free as much as a threshold demands.",
        description="3GiB above the low watermark of transcripts of home ann/dev on web1:10749 "
        "cannot be freed by any policy (reason: protected).",
        quiet=(
            Quiet("all can be freed", _unreachable(0, 1)),
            Quiet("another threshold is crossed", _unreachable(3 * GIB, 0)),
            Quiet("the next run is soon", _unreachable(3 * GIB, 1, "cooldown")),
            Quiet("the rest follows tomorrow", _unreachable(3 * GIB, 1, "caps")),
            Quiet("the trash is emptied soon", _unreachable(3 * GIB, 1, "trash")),
        ),
    ),
    Case(
        alert="HermesPruneReborn",
        severity="warning",
        series={**UP, f"hermes_prune_reborn_total{{{HOME}}}": run((80, 3), (40, 5))},
        first=81,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="A pruned session was still in use.",
        description="Hermes continued 2 session(s) of home ann/dev on web1:10749 within the last "
        "hour after they had been pruned. The agent restored their past from the trash, so "
        "nothing was lost.",
        quiet=(
            Quiet(
                "long before Prometheus first asked",
                {**UP, f"hermes_prune_reborn_total{{{HOME}}}": run((200, 4))},
            ),
            Quiet(
                "the counter was lost and begins anew",
                {**UP, f"hermes_prune_reborn_total{{{HOME}}}": run((100, 4), (100, 0))},
            ),
            Quiet(
                "the agent could not be scraped for an hour",
                {
                    **UP,
                    f"hermes_prune_reborn_total{{{HOME}}}": run((90, 4), (60, "_"), (90, 4)),
                },
            ),
        ),
    ),
    Case(
        alert="HermesPruneFailing",
        severity="warning",
        series=_last_runs(60, failed=600, partial=100, done=300),
        first=40,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="The last prune of a Hermes home did not succeed.",
        description="The prune of home ann/dev on web1:10749 at 1970-01-01 00:10:00 +0000 UTC "
        "failed or was only partly done, and none has succeeded since.",
        quiet=(
            Quiet("the next one went well", _last_runs(60, failed=600, done=601)),
            Quiet("it was days ago", _last_runs(60, failed=-90_000)),
        ),
    ),
    Case(
        alert="HermesPruneFailing",
        severity="warning",
        series=_last_runs(60, partial=600),
        first=40,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="The last prune of a Hermes home did not succeed.",
        description="The prune of home ann/dev on web1:10749 at 1970-01-01 00:10:00 +0000 UTC "
        "failed or was only partly done, and none has succeeded since.",
        quiet=(Quiet("the next one went well", _last_runs(60, partial=600, done=700)),),
    ),
    Case(
        alert="HermesPruneBlocked",
        severity="warning",
        series=_blocked(pressure=1, enforcing=1),
        first=40,
        labels={**HOME_LABELS, "reason": "routing"},
        page=HOST_PAGE,
        summary="A prune is needed, but the agent refuses to run it.",
        description="Home ann/dev on web1:10749 is above a threshold, but the agent prunes nothing "
        "(reason: routing).",
        quiet=(
            Quiet("no threshold is crossed", _blocked(pressure=0, enforcing=1)),
            Quiet("it only observes", _blocked(pressure=1, enforcing=0)),
            Quiet("for some minutes", _blocked(pressure=1, enforcing=1, length=15)),
        ),
    ),
    Case(
        alert="HermesPruneCapped",
        severity="warning",
        series=_capped(400, enforcing=1),
        first=40,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="A prune is larger than the caps of a day.",
        description="400 item(s) of home ann/dev on web1:10749 wait because automatic runs have "
        "taken what prune.caps allows in 24 hours.",
        quiet=(
            Quiet("all of it could go", _capped(0, enforcing=1)),
            Quiet("it only observes", _capped(400, enforcing=0)),
            Quiet("for some minutes", _capped(400, enforcing=1, length=15)),
        ),
    ),
    Case(
        alert="HermesPruneDidNotHelp",
        severity="warning",
        series=_pruned(value=run((120, 3 * GIB)), pressure=run((10, 0), (110, 1)), at=3600),
        first=85,
        labels={**HOME_LABELS, "threshold": "transcripts"},
        page=HOST_PAGE,
        summary="A prune ran and did not help.",
        description="transcripts of home ann/dev on web1:10749 is at 150% of its high watermark "
        "although a prune ran within the last day.",
        quiet=(
            *(
                Quiet(
                    f"bytes are on their way: {reason}",
                    {
                        **_pruned(
                            value=run((120, 3 * GIB)), pressure=run((10, 0), (110, 1)), at=3600
                        ),
                        f'hermes_prune_unreachable_bytes{{{HOME},threshold="transcripts",'
                        f'reason="{reason}"}}': run((120, GIB)),
                    },
                )
                for reason in ("trash", "caps")
            ),
            Quiet(
                "it was made more than a day ago",
                _pruned(value=run((120, 3 * GIB)), pressure=run((10, 0), (110, 1)), at=-86400),
            ),
            Quiet(
                "it only observes",
                {
                    **_pruned(value=run((120, 3 * GIB)), pressure=run((120, 1)), at=3600),
                    f"hermes_prune_enforcing{{{HOME}}}": run((120, 0)),
                },
            ),
            Quiet(
                "it was crossed less than an hour ago",
                _pruned(value=run((120, 3 * GIB)), pressure=run((60, 0), (60, 1)), at=3600),
            ),
            Quiet(
                "it is below the high watermark, on its way to the low one",
                _pruned(value=run((120, 2 * GIB)), pressure=run((10, 0), (110, 1)), at=3600),
            ),
            Quiet(
                "the agent was started while it was crossed",
                _pruned(value=run((55, 3 * GIB)), pressure=run((55, 1)), at=0),
            ),
            Quiet(
                "it did help",
                _pruned(
                    value=run((60, 3 * GIB), (60, GIB)), pressure=run((60, 1), (60, 0)), at=3600
                ),
            ),
        ),
    ),
    Case(
        alert="HermesRetentionInert",
        severity="warning",
        series=_retention(run((_WEEK_AND_MORE, -9_000_000)), eligible=12, by_age=1),
        first=7 * DAY + 64,
        step=8,
        labels={**HOME_LABELS, "policy": "old_sessions"},
        page=HOST_PAGE,
        summary="Retention is configured, but old items stay.",
        description="12 item(s) of home ann/dev on web1:10749 are old enough for the policy "
        "old_sessions, the oldest for more than a week.",
        quiet=(
            Quiet(
                "the oldest ones do go",
                _retention(ramp(_WEEK_AND_MORE, -9_000_000, 600), eligible=12, by_age=1),
            ),
            Quiet(
                "only thresholds start runs, and none took of this policy",
                _retention(run((_WEEK_AND_MORE, -9_000_000)), eligible=12),
            ),
            Quiet(
                "none is past its policy",
                _retention(run((_WEEK_AND_MORE, -9_000_000)), eligible=0, by_age=1),
            ),
        ),
    ),
    Case(
        alert="HermesRetentionInert",
        severity="warning",
        series=_retention(
            run((_WEEK_AND_MORE, -9_000_000)),
            eligible=12,
            deleted=ramp(_WEEK_AND_MORE, 40, 1),
        ),
        first=7 * DAY + 64,
        step=8,
        labels={**HOME_LABELS, "policy": "old_sessions"},
        page=HOST_PAGE,
        summary="Retention is configured, but old items stay.",
        description="12 item(s) of home ann/dev on web1:10749 are old enough for the policy "
        "old_sessions, the oldest for more than a week.",
        quiet=(
            Quiet(
                "a person took the oldest",
                _retention(
                    ramp(_WEEK_AND_MORE, -9_000_000, 600),
                    eligible=12,
                    deleted=ramp(_WEEK_AND_MORE, 40, 1),
                ),
            ),
        ),
    ),
)


def _ticker(lag: Values | None, gateway: int) -> Series:
    return {
        f"hermes_cron_ticker_timestamp_seconds{{{HOME}}}": lag
        or [*ramp(10, 60, 60), *run((40, 600))],
        f"hermes_gateway_up{{{HOME}}}": run((50, gateway)),
    }


GATEWAYS = (
    Case(
        alert="HermesGatewayDown",
        severity="critical",
        series={f"hermes_gateway_up{{{HOME}}}": run((10, 1), (30, 0))},
        first=20,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="The gateway of a Hermes home does not run.",
        description="The gateway of home ann/dev on web1:10749 ran within the last week and does "
        "not run now: chats are not answered.",
        quiet=(
            Quiet("it never ran", {f"hermes_gateway_up{{{HOME}}}": run((60, 0))}),
            Quiet(
                "it was restarted",
                {f"hermes_gateway_up{{{HOME}}}": run((20, 1), (9, 0), (20, 1))},
            ),
        ),
    ),
    Case(
        alert="HermesGatewayDown",
        severity="critical",
        series={f"hermes_gateway_up{{{HOME}}}": run((6, 1), (8 * DAY // 10, 0))},
        first=70,
        step=10,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="The gateway of a Hermes home does not run.",
        description="The gateway of home ann/dev on web1:10749 ran within the last week and does "
        "not run now: chats are not answered.",
        quiet=(
            Quiet(
                "it was stopped more than a week ago",
                {f"hermes_gateway_up{{{HOME}}}": run((6, 1), (8 * DAY // 10, 0))},
                since=7 * DAY + 180,
            ),
        ),
    ),
    Case(
        alert="HermesGatewayRestartStorm",
        severity="critical",
        series={f"hermes_gateway_starts_recent{{{HOME}}}": run((10, 1), (30, 5))},
        first=20,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="The gateway of a Hermes home restarts again and again.",
        description="The gateway of home ann/dev on web1:10749 was started 5 times within 10 "
        "minutes: it fails soon after each start.",
        quiet=(
            Quiet("four times", {f"hermes_gateway_starts_recent{{{HOME}}}": run((10, 1), (30, 4))}),
        ),
    ),
    Case(
        alert="HermesCronTickerSilent",
        severity="warning",
        series=_ticker(None, 1),
        first=31,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="The cron ticker of a running gateway is silent.",
        description="The cron ticker of home ann/dev on web1:10749 last ran 21m 0s ago although "
        "the gateway runs: scheduled jobs do not start.",
        quiet=(
            Quiet("the gateway does not run", _ticker(None, 0)),
            Quiet("always ten minutes ago", _ticker(ramp(50, -600, 60), 1)),
        ),
    ),
    Case(
        alert="HermesKanbanDeadOwner",
        severity="warning",
        series={f"hermes_kanban_tasks_dead_owner{{{HOME}}}": run((10, 0), (90, 1))},
        first=80,
        labels=HOME_LABELS,
        page=HOST_PAGE,
        summary="Kanban tasks are marked as running but their worker is dead.",
        description="1 running task(s) of home ann/dev on web1:10749 name a worker process that is "
        "gone: no process works on them.",
        quiet=(
            Quiet(
                "each is taken up again by Hermes",
                {f"hermes_kanban_tasks_dead_owner{{{HOME}}}": run(*[(9, 1), (1, 0)] * 10)},
            ),
        ),
    ),
)

CASES = (*AGENTS, *HOMES, *SESSIONS, *DISK, *GATEWAYS)
