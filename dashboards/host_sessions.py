"""Sessions and usage of one host."""

from __future__ import annotations

from dashboards.board import Section, equal_row, row_of_widths
from dashboards.panels import LOOK, NOW, QUIET, Panel, Query, graph_panel, heatmap_panel
from dashboards.words import ENDINGS, NO_AGENT, NO_RULES, SOURCES, TOKENS, VERDICTS, WAITS_FOR


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
        "Sessions whose end was never written. Dead: no process runs them any more; list them "
        "with `hermes-exporter sessions --verdict dead` and see what a reap would do with "
        "`hermes-exporter reap`. Exempt: their source is never reaped. Unknown: it cannot be told, "
        "or not yet; see below.",
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
        "Rows whose id is no text that Hermes writes. They are counted here alone, and never "
        "touched. Look at the database with `hermes doctor`.",
        Query("sum(hermes_sessions_unreadable{<home>})", "unreadable"),
        colours={"unreadable": LOOK},
        reaches=1,
        no_data=NO_AGENT,
    )


def _by_source() -> Panel:
    return graph_panel(
        "Open sessions by source",
        "Where the open sessions come from. A source that climbs after an upgrade leaks: compare "
        "with the Hermes version above, and look at one of its sessions with "
        "`hermes-exporter sessions --source SOURCE`.",
        Query("sum by (source) (hermes_sessions_open{<home>})", "{{source}}"),
        stacked=True,
        colours=SOURCES,
        no_data=NO_AGENT,
    )


def _leaks() -> Panel:
    return graph_panel(
        "Leaked, reaped and given back in the last hour",
        "New leaks against what was reaped. Leaks without reaps: the reaper only observes, or its "
        "breaker is open; see the modes in the table above. A session given back was ended by "
        "mistake: find it with `hermes-exporter history`, and set the reaper to observe until you "
        "know why.",
        [
            Query("sum(home:hermes_sessions_leaked:increase1h{<home>})", "leaked"),
            Query("sum(home:hermes_reaper_reaped:increase1h{<home>})", "reaped"),
            Query("sum(home:hermes_reaper_reopened:increase1h{<home>})", "given back"),
        ],
        colours={"leaked": LOOK, "reaped": "blue", "given back": NOW},
        reaches=1,
        no_data=NO_RULES,
    )


def _causes() -> Panel:
    return graph_panel(
        "Leaked sessions by cause",
        "How the dead sessions were left. In the middle of a turn: the process was killed or "
        "crashed; look at the host's memory and at Hermes's logs. After a turn: it left without "
        "saying so, as one-shot chats do. Empty: it never began.",
        Query("sum by (cause) (hermes_sessions_leaked{<home>})", "{{cause}}"),
        stacked=True,
        reaches=1,
        colours={"mid_turn": LOOK, "after_turn": "light-orange", "empty": QUIET},
        no_data="No leaked sessions",
    )


def _idle() -> Panel:
    return graph_panel(
        "Idle time of open sessions",
        "How long the open sessions have been silent, and how long ago the oldest began. Days of "
        "silence are leaks or chats that nobody will come back to: "
        "`hermes-exporter sessions` shows which.",
        [
            Query(
                "histogram_quantile(0.5, sum by (le) (hermes_session_open_idle_seconds_bucket"
                "{<home>}))",
                "half are idle longer",
            ),
            Query(
                "histogram_quantile(0.95, sum by (le) (hermes_session_open_idle_seconds_bucket"
                "{<home>}))",
                "one in twenty is idle longer",
            ),
            Query(
                "time() - min(hermes_session_open_oldest_timestamp_seconds{<home>})",
                "age of the oldest",
            ),
        ],
        unit="s",
        colours={"age of the oldest": QUIET},
        no_data="No open sessions",
    )


def _messages() -> Panel:
    return heatmap_panel(
        "Messages per session",
        "How many sessions have up to so many messages. A dark band at the bottom is empty and "
        "trivial sessions: `hermes-exporter prune --policy empty_sessions` shows what would go. "
        "Cells that wander up are sessions that never roll over.",
        "sum by (le) (hermes_session_messages_bucket{<home>})",
        unit="short",
        no_data=NO_AGENT,
    )


def _marathons() -> Panel:
    return graph_panel(
        "Marathon sessions",
        "Open sessions near and over the limit of messages, and the longest of all. Ask their "
        "people to begin anew (`/new`), or set `session_reset.max_messages` in the home; nothing "
        "here ends them by force.",
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
        "Sessions that the database still keeps, by how they ended. `reaped` are ours. If it only "
        "grows, no retention is at work: see Retention below.",
        Query("sum by (end_reason) (hermes_sessions_ended{<home>})", "{{end_reason}}"),
        stacked=True,
        colours=ENDINGS,
        no_data="No ended sessions",
    )


def _small() -> Panel:
    return graph_panel(
        "Empty, trivial and wrongly ended sessions",
        "Ended sessions without messages, with a few, and with messages written after their end. "
        "The last kind should not be: somebody ended a session that was in use. If its reason is "
        "`reaped` look at `hermes-exporter history`; otherwise it is Hermes's own doing.",
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
        "An open session whose tool calls fail, or that calls one tool over and over, burns tokens "
        "for nothing. Find it with `hermes-exporter sessions`, then interrupt it where it runs.",
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
        "What the models were sent and answered. Much input without `cache_read` means that a "
        "provider's cache is not used. Reasoning tokens are part of the output.",
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
        "Which models are at work. A model nobody asked for is a fallback: look at the provider's "
        "status and at the home's `config.yaml`.",
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
        "What Hermes reckons it costs: as estimated by itself and as told by the provider. The two "
        "overlap, do not add them up; what has no price is in neither, so trust tokens first.",
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
        "Messages written, calls of tools and of models. Many calls of models without calls of "
        "tools or messages are retries: look at the provider, and at the runs of failing tools.",
        [
            Query("sum(rate(hermes_messages_total{<home>}[$__rate_interval])) * 60", "messages"),
            Query(
                "sum(rate(hermes_tool_calls_total{<home>}[$__rate_interval])) * 60", "tool calls"
            ),
            Query("sum(rate(hermes_api_calls_total{<home>}[$__rate_interval])) * 60", "API calls"),
        ],
        no_data=NO_AGENT,
    )
