"""Sessions and usage of one host."""

from __future__ import annotations

from dashboards.board import Section, equal_row, row_of_widths
from dashboards.panels import LOOK, NOW, QUIET, Panel, Query, graph_panel, heatmap_panel
from dashboards.words import DAYS, ENDINGS, NO_AGENT, NO_RULES, SOURCES, TOKENS, VERDICTS, WAITS_FOR


def sessions() -> Section:
    return Section(
        "Sessions",
        [
            equal_row(8, _by_verdict(), _by_source()),
            equal_row(8, _leaks(), _causes(), _idle()),
            equal_row(8, _unknown(), _unreadable()),
            row_of_widths(9, (16, _messages()), (8, _marathons())),
            equal_row(8, _ended(), _small(), _streaks()),
        ],
    )


def usage() -> Section:
    return Section("Usage", [equal_row(8, _tokens(), _models()), equal_row(8, _cost(), _calls())])


def _by_verdict() -> Panel:
    return graph_panel(
        "Open sessions by verdict",
        "Sessions without an end. Dead: no process runs them; `hermes-exporter sessions "
        "--verdict dead` lists them, `hermes-exporter reap` shows what a reap would end. "
        "Exempt: their source is never reaped. Unknown: not known, or not yet; see below.",
        Query(
            "sum by (verdict) (hermes_sessions_open_by_verdict{<home>})",
            "{{verdict}}",
        ),
        stacked=True,
        colours=VERDICTS,
        no_data=NO_AGENT,
    )


def _unknown() -> Panel:
    return graph_panel(
        "Why sessions are unknown",
        "What stands in the way of a verdict. A server, chat or unknown program has the database "
        "open: its sessions are presumed dead after `reaper.presume_after`, or when it ends; "
        "`hermes-exporter explain ID` names it. Stopped: a process is suspended. Blind, routing: "
        "`hermes-exporter check` says what to grant. Overdue: idle for longer than the time "
        "beside that process; if they stay, see the runbook of HermesSessionsUnjudged.",
        [
            Query("sum by (reason) (hermes_sessions_unknown{<home>})", "{{reason}}"),
            Query("sum(hermes_sessions_overdue{<home>})", "overdue"),
        ],
        colours={**WAITS_FOR, "overdue": LOOK},
        no_data=NO_AGENT,
    )


def _unreadable() -> Panel:
    return graph_panel(
        "Sessions that cannot be read",
        "Rows whose id is not text that Hermes writes. They are only counted here, and never "
        "changed. Check the database with `hermes doctor`.",
        Query("sum(hermes_sessions_unreadable{<home>})", "unreadable"),
        colours={"unreadable": LOOK},
        reaches=1,
        no_data=NO_AGENT,
    )


def _by_source() -> Panel:
    return graph_panel(
        "Open sessions by source",
        "Sources of the open sessions. A source that rises after an upgrade leaks: compare with "
        "the Hermes version above, and check its sessions with `hermes-exporter sessions "
        "--source SOURCE`.",
        Query("sum by (source) (hermes_sessions_open{<home>})", "{{source}}"),
        stacked=True,
        colours=SOURCES,
        no_data=NO_AGENT,
    )


def _leaks() -> Panel:
    return graph_panel(
        "Leaked, reaped and reopened in the last hour",
        "New leaks and reaps. Leaks without reaps: the reaper only observes, or its breaker is "
        "open; see the modes in the table above. A reopened session was ended by mistake: find "
        "it with `hermes-exporter history`, and set the reaper to observe until you know why.",
        [
            Query("sum(home:hermes_sessions_leaked:increase1h{<home>})", "leaked"),
            Query("sum(home:hermes_reaper_reaped:increase1h{<home>})", "reaped"),
            Query("sum(home:hermes_reaper_reopened:increase1h{<home>})", "reopened"),
        ],
        colours={"leaked": LOOK, "reaped": "blue", "reopened": NOW},
        reaches=1,
        no_data=NO_RULES,
    )


def _causes() -> Panel:
    return graph_panel(
        "Leaked sessions by cause",
        "How the dead sessions were left. In the middle of a turn: the process was killed or "
        "crashed; check the host's memory and Hermes's logs. After a turn: the process ended "
        "without an end of the session, as one-shot chats do. Empty: no turn began.",
        Query("sum by (cause) (hermes_sessions_leaked{<home>})", "{{cause}}"),
        stacked=True,
        reaches=1,
        colours={"mid_turn": LOOK, "after_turn": "light-orange", "empty": QUIET},
        no_data="No leaked sessions",
    )


def _idle() -> Panel:
    return graph_panel(
        "Idle time of open sessions",
        "Time since the last activity of the open sessions, and age of the oldest. Days without "
        "activity: leaks, or chats that no user will continue; `hermes-exporter sessions` lists "
        "them.",
        [
            Query(
                "histogram_quantile(0.5, sum by (le) (hermes_session_open_idle_seconds_bucket"
                "{<home>})) / 86400",
                "half are idle longer",
            ),
            Query(
                "histogram_quantile(0.95, sum by (le) (hermes_session_open_idle_seconds_bucket"
                "{<home>})) / 86400",
                "one in twenty is idle longer",
            ),
            Query(
                "(time() - min(hermes_session_open_oldest_timestamp_seconds{<home>})) / 86400",
                "age of the oldest",
            ),
        ],
        unit=DAYS,
        colours={"age of the oldest": QUIET},
        no_data="No open sessions",
    )


def _messages() -> Panel:
    return heatmap_panel(
        "Messages per session",
        "How many sessions have up to this many messages. A dark band at the bottom: empty and "
        "trivial sessions; `hermes-exporter prune --policy empty_sessions` shows what would be "
        "pruned. Cells that move up: sessions that are never reset.",
        "sum by (le) (hermes_session_messages_bucket{<home>})",
        unit="short",
        no_data=NO_AGENT,
    )


def _marathons() -> Panel:
    return graph_panel(
        "Marathon sessions",
        "Open sessions near and above the limit of messages, and the longest of all. Ask their "
        "users to start a new session (`/new`), or set `session_reset.max_messages` in the "
        "home; the agent does not end them.",
        [
            Query("sum by (level) (hermes_sessions_marathon{<home>})", "{{level}} the limit"),
            Query("max(hermes_session_messages_max{<home>})", "messages of the longest"),
        ],
        colours={
            "near the limit": "blue",
            "over the limit": LOOK,
            "messages of the longest": QUIET,
        },
        right={"messages of the longest": "short"},
        no_data=NO_AGENT,
    )


def _ended() -> Panel:
    return graph_panel(
        "Ended sessions by reason",
        "Ended sessions in the database, by end reason. `reaped`: ended by this agent. If it "
        "only grows, no retention is active: see Retention below.",
        Query("sum by (end_reason) (hermes_sessions_ended{<home>})", "{{end_reason}}"),
        stacked=True,
        colours=ENDINGS,
        no_data="No ended sessions",
    )


def _small() -> Panel:
    return graph_panel(
        "Empty, trivial and wrongly ended sessions",
        "Ended sessions without messages, with a few, and with messages written after their "
        "end. The last kind is wrong: a session in use was ended. If its reason is `reaped`, "
        "check `hermes-exporter history`; otherwise Hermes or another tool did it.",
        [
            Query("sum(hermes_sessions_empty{<home>})", "empty"),
            Query("sum(hermes_sessions_trivial{<home>})", "trivial"),
            Query(
                "sum by (end_reason) (hermes_sessions_written_after_end{<home>})",
                "written after end: {{end_reason}}",
            ),
        ],
        colours={"empty": QUIET, "trivial": "blue", "written after end: reaped": LOOK},
        no_data=NO_AGENT,
    )


def _streaks() -> Panel:
    return graph_panel(
        "Longest runs of failing and repeated tools",
        "An open session whose tool calls fail, or that repeats one tool call, wastes tokens. "
        "Find it with `hermes-exporter sessions`, then interrupt it where it runs.",
        [
            Query("max(hermes_tool_error_streak_max{<home>})", "failed calls in a row"),
            Query("max(hermes_tool_repeat_streak_max{<home>})", "calls of one tool in a row"),
        ],
        colours={"failed calls in a row": LOOK, "calls of one tool in a row": "blue"},
        no_data="No open sessions",
    )


def _tokens() -> Panel:
    return graph_panel(
        "Tokens per minute by kind",
        "Tokens sent to and received from models. Much input without `cache_read`: a provider's "
        "cache is not used. Reasoning tokens are part of the output.",
        Query(
            'sum by (kind) (rate(hermes_tokens_total{<home>, kind!="reasoning"}'
            "[$__rate_interval])) * 60",
            "{{kind}}",
        ),
        stacked=True,
        colours=TOKENS,
        no_data="No tokens were used",
    )


def _models() -> Panel:
    return graph_panel(
        "Tokens per minute by model",
        "Which models are used. A model that you did not choose is a fallback: check the "
        "provider's status and the home's `config.yaml`.",
        Query(
            'topk(8, sum by (model) (rate(hermes_tokens_total{<home>, kind!="reasoning"}'
            "[$__rate_interval])) * 60)",
            "{{model}}",
        ),
        no_data="No tokens were used",
    )


def _cost() -> Panel:
    return graph_panel(
        "Cost per hour",
        "Cost as Hermes estimates it and as the provider reports it. The two overlap, so do not "
        "add them; usage without a price is in neither, so tokens are more reliable.",
        Query(
            "sum by (status) (rate(hermes_cost_usd_total{<home>}[$__rate_interval])) * 3600",
            "{{status}}",
        ),
        unit="currencyUSD",
        colours={"estimated": QUIET, "actual": "blue"},
        no_data="No cost is known",
    )


def _calls() -> Panel:
    return graph_panel(
        "Messages and calls per minute",
        "Messages, tool calls and API calls. Many API calls without tool calls or messages are "
        "retries: check the provider, and the failing tools.",
        [
            Query("sum(rate(hermes_messages_total{<home>}[$__rate_interval])) * 60", "messages"),
            Query(
                "sum(rate(hermes_tool_calls_total{<home>}[$__rate_interval])) * 60", "tool calls"
            ),
            Query("sum(rate(hermes_api_calls_total{<home>}[$__rate_interval])) * 60", "API calls"),
        ],
        no_data=NO_AGENT,
    )
