"""Fleet dashboard: all hosts, worst first.

It reads recorded series only, so that thousands of hosts are cheap. Series of the level `home:`
have the labels job, instance and home. Series of the level `job:` are sums over the whole job:
Instance and Home do not change them.
"""

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
    PLAIN,
    QUIET,
    TROUBLE,
    Column,
    Panel,
    Query,
    graph_panel,
    stat_panel,
    table_panel,
    to_host,
)
from dashboards.words import (
    DAYS,
    DOWN,
    KINDS,
    NO_RULES,
    OUTCOMES,
    POLICIES,
    SOURCES,
    TOKENS,
    VERDICTS,
)

RECORDED = VariableSources(
    "job:hermes_agent_up:count", "instance:hermes_agent_up:min", "home:hermes_home_up:min"
)
NONE_OF_ALL = "0 * sum(job:hermes_home_up:count{<job>})"
"""Zero if there is a fleet at all: a count of nothing would have no result."""


def dashboard() -> model.Dashboard:
    return build_dashboard(
        "hermes-fleet",
        "Hermes / Fleet",
        "All hosts that run hermes-agent, worst first. A click on a host leads to its own "
        "dashboard.",
        [
            Section(None, [_numbers()]),
            Section(
                "Worst first",
                [
                    equal_row(7, _leaky(), _filling(), _pressed()),
                    equal_row(7, _down(), _blind(), _false_reaps()),
                    row_of_widths(7, (16, _growing()), (8, _marathons())),
                ],
            ),
            Section(
                "Sessions of the fleet",
                [equal_row(8, _verdicts(), _leaks()), equal_row(8, _sources(), _reasons())],
            ),
            Section(
                "Disk of the fleet",
                [
                    row_of_widths(9, (16, _kinds()), (8, _pressure())),
                    equal_row(8, _reclaimable(), _freed(), _runs()),
                ],
            ),
            Section(
                "Use of the fleet",
                [equal_row(8, _tokens(), _cost(), _calls()), equal_row(8, _versions(), _agents())],
            ),
        ],
        choices=RECORDED,
        since="now-24h",
        all_instances=True,
    )


def _numbers() -> PanelRow:
    return equal_row(
        5,
        stat_panel(
            "Agents down",
            "Hosts whose agent does not answer: nothing is known about them. They are listed "
            "below.",
            "sum(job:hermes_agent_up:count_down{<job>})",
            steps=ALARM,
            no_data=NO_RULES,
        ),
        stat_panel(
            "Unreadable homes",
            "Their figures are old or missing, and nothing in them is reaped or pruned. They "
            "are listed below; on the host `hermes-exporter check` says why.",
            "sum(job:hermes_home_up:count_down{<job>})",
            steps=ALARM,
            no_data=NO_RULES,
        ),
        stat_panel(
            "Leaked sessions",
            "Open sessions that no process runs. Go to the host at the top of the list below "
            "and see what a reap would end.",
            "sum(job:hermes_sessions_leaked:sum{<job>})",
            steps=TROUBLE,
            no_data=NO_RULES,
        ),
        stat_panel(
            "Full in three days",
            "Homes whose disk will be full at the rate of the last six hours. Go to the top of "
            "the list below: prune there, or add space.",
            "count(home:hermes_filesystem_avail_bytes:days_until_full{<home>} < 3) "
            f"or {NONE_OF_ALL}",
            steps=ALARM,
            trend=False,
            no_data=NO_RULES,
        ),
        stat_panel(
            "Homes under pressure",
            "A high watermark was crossed and the low watermark is not reached yet. Where "
            "pruning is enforced, this ends by itself; elsewhere run `hermes-exporter prune`.",
            f"count(home:hermes_prune_pressure:max{{<home>}} == 1) or {NONE_OF_ALL}",
            steps=TROUBLE,
            trend=False,
            no_data=NO_RULES,
        ),
        stat_panel(
            "False reaps today",
            "Sessions that were ended while in use, and reopened. One is too many: set the "
            "reaper of that host to observe and read `hermes-exporter history` there.",
            "sum(home:hermes_reaper_reopened:increase1d{<home>})",
            decimals=0,
            steps=ALARM,
            trend=False,
            no_data=NO_RULES,
        ),
    )


def _worst(
    title: str, description: str, columns: list[Column], no_data: str, *, ascending: bool = False
) -> Panel:
    """Return a table of homes, worst first; a click leads to the host."""
    return table_panel(
        title,
        description,
        columns,
        labels={"instance": "Host", "home": "Home"},
        links={"Host": to_host(home="Home")},
        sort=columns[0].title,
        ascending=ascending,
        no_data=no_data,
    )


def _leaky() -> Panel:
    return _worst(
        "Leaked sessions",
        "Homes with the most dead open sessions, and how many more have no verdict yet. Many at "
        "once after an upgrade: a release leaks. A blind home has no value here. "
        "On the host: `hermes-exporter sessions --verdict dead`, then `hermes-exporter reap`.",
        [
            Column(
                "Leaked",
                "topk(10, max by (instance, home) (home:hermes_sessions_leaked:sum{<home>} > 0))",
                decimals=0,
                steps=TROUBLE,
                bar=True,
            ),
            Column(
                "Unknown",
                "max by (instance, home) (home:hermes_sessions_unknown:sum{<home>}) and "
                "topk(10, max by (instance, home) (home:hermes_sessions_leaked:sum{<home>} > 0))",
                decimals=0,
            ),
        ],
        "No leaked sessions",
    )


def _filling() -> Panel:
    return _worst(
        "Days until full",
        "Homes whose filesystem is full soonest, at the rate of the last six hours. On the "
        "host: check Bytes by kind; if the home does not grow, something else on that disk does.",
        [
            Column(
                "Full in",
                "bottomk(10, max by (instance, home) "
                "(home:hermes_filesystem_avail_bytes:days_until_full{<home>} < 365))",
                unit=DAYS,
                decimals=1,
                base=NOW,
                steps=((1, LOOK), (3, PLAIN)),
            )
        ],
        "No filesystem is filling",
        ascending=True,
    )


def _pressed() -> Panel:
    return _worst(
        "Pressure",
        "Homes nearest to a high watermark, as a share of it. Above 100% for long: pruning is "
        "not enforced, is blocked or cannot help. The host's dashboard says which.",
        [
            Column(
                "Of the watermark",
                "topk(10, max by (instance, home) "
                "(home:hermes_prune_threshold_value:ratio{<home>}))",
                unit="percentunit",
                decimals=0,
                base="blue",
                steps=((1, LOOK), (1.1, NOW)),
                bar=True,
            )
        ],
        "No home has thresholds",
    )


def _down() -> Panel:
    return _worst(
        "Down or unreadable",
        "Hosts whose agent does not answer, and homes that an agent cannot read. Agent: "
        "`systemctl status hermes-exporter` on the host. Home: `hermes-exporter check` there.",
        [
            Column(
                "State",
                "topk(10, min by (instance) (instance:hermes_agent_up:min{<agent>} == 0) - 1 "
                "or min by (instance, home) (home:hermes_home_up:min{<home>} == 0))",
                words=DOWN,
            )
        ],
        "All answer and can be read",
        ascending=True,
    )


def _blind() -> Panel:
    return _worst(
        "Blindness",
        "Homes that an agent cannot see completely: sessions there stay unknown and are never "
        "reaped. On the host `hermes-exporter check` says what to grant.",
        [
            Column(
                "Blind spots",
                "topk(10, max by (instance, home) (home:hermes_exporter_blind:count{<home>} > 0))",
                decimals=0,
                steps=TROUBLE,
            ),
            Column(
                "Unknown",
                "max by (instance, home) (home:hermes_sessions_unknown:sum{<home>}) and "
                "topk(10, max by (instance, home) (home:hermes_exporter_blind:count{<home>} > 0))",
                decimals=0,
            ),
        ],
        "Everything can be seen",
    )


def _false_reaps() -> Panel:
    return _worst(
        "False reaps in a day",
        "Homes where sessions were ended while in use, and reopened. Set the reaper of that "
        "host to observe, read `hermes-exporter history`, and report it.",
        [
            Column(
                "Reopened",
                "topk(10, max by (instance, home) (home:hermes_reaper_reopened:increase1d{<home>} "
                "> 0))",
                decimals=0,
                steps=ALARM,
            )
        ],
        "No false reaps",
    )


def _growing() -> Panel:
    chosen = "topk(10, max by (instance, home) (home:hermes_disk_bytes:delta1d{<home>} > 0))"
    return _worst(
        "Top growers",
        "Homes that grew most in a day. Growth by gigabytes is usually a failing loop: check "
        "transcripts, request dumps and logs by kind on the host's dashboard.",
        [
            Column("Grown in a day", chosen, unit="bytes", bar=True, base="blue"),
            Column(
                "Grown in 6 hours",
                "max by (instance, home) (home:hermes_disk_bytes:delta6h{<home>}) and " + chosen,
                unit="bytes",
            ),
            Column(
                "Now",
                "max by (instance, home) (home:hermes_disk_bytes:sum{<home>}) and " + chosen,
                unit="bytes",
            ),
            Column(
                "Could free",
                "max by (instance, home) (home:hermes_disk_reclaimable_bytes:sum{<home>}) and "
                + chosen,
                unit="bytes",
            ),
        ],
        "No home has grown, or there is less than a day of history",
    )


def _marathons() -> Panel:
    chosen = "topk(10, max by (instance, home) (home:hermes_sessions_marathon:sum{<home>} > 0))"
    return _worst(
        "Marathon sessions",
        "Homes with sessions above the limit of messages. Ask their users to start a new "
        "session, or set `session_reset.max_messages` in the home.",
        [
            Column("Over the limit", chosen, decimals=0, steps=TROUBLE, bar=True),
            Column(
                "Open",
                "max by (instance, home) (home:hermes_sessions_open:sum{<home>}) and " + chosen,
                decimals=0,
            ),
        ],
        "No session is over its limit",
    )


def _verdicts() -> Panel:
    return graph_panel(
        "Open sessions by verdict",
        "Verdicts on all open sessions. Dead sessions that only increase: reaping is off. Many "
        "unknown: agents are blind, see the list above, or wait for chats and programs; on the "
        "host `hermes-exporter status` says for which.",
        Query(
            "sum by (verdict) (job:hermes_sessions_open_by_verdict:sum{<job>})",
            "{{verdict}}",
        ),
        stacked=True,
        colours=VERDICTS,
        no_data=NO_RULES,
    )


def _leaks() -> Panel:
    return graph_panel(
        "Leaked, reaped and reopened in the last hour",
        "If leaks rise and stay high, compare with the Hermes versions below: a release leaks. "
        "Far more reaps than leaks: set the reapers to observe and check why.",
        [
            Query("sum(job:hermes_sessions_leaked:increase1h{<job>})", "leaked"),
            Query("sum(job:hermes_reaper_reaped:increase1h{<job>})", "reaped"),
            Query("sum(job:hermes_reaper_reopened:increase1h{<job>})", "reopened"),
        ],
        colours={"leaked": LOOK, "reaped": "blue", "reopened": NOW},
        no_data=NO_RULES,
    )


def _sources() -> Panel:
    return graph_panel(
        "Dead sessions by source",
        "Which source leaks. One source alone: its program does not end its sessions; check one "
        "with `hermes-exporter explain ID` on a host.",
        Query(
            'sum by (source) (job:hermes_sessions_open_by_verdict:sum{<job>, verdict="dead"})',
            "{{source}}",
        ),
        stacked=True,
        colours=SOURCES,
        reaches=1,
        no_data="No leaked sessions",
    )


def _reasons() -> Panel:
    return graph_panel(
        "Blindness, and gateways that are down",
        "Homes that agents cannot see completely, by reason, and gateways that do not run. A "
        "reason that appears everywhere at once came with a rollout: check the unit file, or "
        "the mount.",
        [
            Query("sum by (reason) (job:hermes_exporter_blind:count{<job>})", "blind: {{reason}}"),
            Query("sum(job:hermes_gateway_up:count_down{<job>})", "gateways down"),
        ],
        shades=LOOK,
        colours={"gateways down": NOW},
        reaches=1,
        no_data="Everything can be seen",
    )


def _kinds() -> Panel:
    return graph_panel(
        "Bytes by kind",
        "Disk use of all homes. Which kind grows? The pruner can free transcripts, checkpoints "
        "and dumps; the rest belongs to Hermes or to other programs.",
        Query("sum by (kind) (job:hermes_disk_bytes:sum{<job>})", "{{kind}}"),
        unit="bytes",
        stacked=True,
        colours=KINDS,
        legend="table",
        no_data=NO_RULES,
    )


def _pressure() -> Panel:
    return graph_panel(
        "Homes under pressure by threshold",
        "Which thresholds are crossed. Many homes at one threshold: its watermarks are too low "
        "for this fleet, or pruning is not enforced.",
        Query("sum by (threshold) (job:hermes_prune_pressure:count{<job>})", "{{threshold}}"),
        stacked=True,
        shades=LOOK,
        reaches=1,
        no_data="No home is under pressure",
    )


def _reclaimable() -> Panel:
    return graph_panel(
        "What policies could free",
        "Bytes that each policy could take now. Large and constant: pruning only observes; "
        "consider `prune.mode: enforce`.",
        Query("sum by (policy) (job:hermes_disk_reclaimable_bytes:sum{<job>})", "{{policy}}"),
        unit="bytes",
        stacked=True,
        colours=POLICIES,
        no_data="No policy could free anything",
    )


def _freed() -> Panel:
    return graph_panel(
        "Freed by pruning in the last hour",
        "Bytes that became free, by policy. Nothing while homes are under pressure: a host's "
        "dashboard shows what blocks pruning.",
        Query(
            "sum by (policy) "
            "(avg_over_time(job:hermes_prune_freed_bytes:rate10m{<job>}[1h])) * 3600",
            "{{policy}}",
        ),
        unit="bytes",
        stacked=True,
        colours=POLICIES,
        no_data="No run has freed anything yet",
    )


def _runs() -> Panel:
    return graph_panel(
        "Prune runs and items in the last hour",
        "Runs by outcome, and items taken. Failed runs: the host's `hermes-exporter history` "
        "says why. Many items at once: a watermark was lowered, or a home grew very fast.",
        [
            Query(
                "sum by (outcome) (avg_over_time(job:hermes_prune_runs:rate10m{<job>}[1h])) * 3600",
                "{{outcome}}",
            ),
            Query(
                "sum(avg_over_time(job:hermes_prune_deleted:rate10m{<job>}[1h])) * 3600", "items"
            ),
        ],
        colours={**OUTCOMES, "items": QUIET},
        right={"items": "short"},
        no_data="There was no run yet",
    )


def _tokens() -> Panel:
    return graph_panel(
        "Tokens per minute",
        "Tokens sent to and received from models. A rise without more messages: sessions in a "
        "loop; see the marathons above.",
        Query(
            'sum by (kind) (job:hermes_tokens:rate10m{<job>, kind!="reasoning"}) * 60', "{{kind}}"
        ),
        stacked=True,
        colours=TOKENS,
        no_data="No tokens were used",
    )


def _cost() -> Panel:
    return graph_panel(
        "Cost per hour",
        "Estimated by Hermes, and reported by providers; the two overlap. Usage without a price "
        "is in neither, so tokens are more reliable.",
        Query("sum by (status) (job:hermes_cost_usd:rate10m{<job>}) * 3600", "{{status}}"),
        unit="currencyUSD",
        colours={"estimated": QUIET, "actual": "blue"},
        no_data="No cost is known",
    )


def _calls() -> Panel:
    return graph_panel(
        "Messages and calls per minute",
        "Messages, tool calls and API calls. API calls that rise while messages do not are "
        "retries: check the providers.",
        [
            Query("sum(job:hermes_messages:rate10m{<job>}) * 60", "messages"),
            Query("sum(job:hermes_tool_calls:rate10m{<job>}) * 60", "tool calls"),
            Query("sum(job:hermes_api_calls:rate10m{<job>}) * 60", "API calls"),
        ],
        no_data=NO_RULES,
    )


def _versions() -> Panel:
    return graph_panel(
        "Homes by Hermes version",
        "Progress of upgrades. Compare it with the leaks above: a release that leaks shows the "
        "same day.",
        Query("sum by (version) (job:hermes_agent_info:count{<job>})", "{{version}}"),
        stacked=True,
        no_data="No version is known",
    )


def _agents() -> Panel:
    return graph_panel(
        "Agents by version",
        "Versions of this exporter, and agents that do not answer. Mixed versions for long: a "
        "rollout is stuck.",
        [
            Query("sum by (version) (job:hermes_exporter_build_info:count{<job>})", "{{version}}"),
            Query("sum(job:hermes_agent_up:count_down{<job>})", "down"),
        ],
        stacked=True,
        colours={"down": NOW},
        no_data=NO_RULES,
    )
