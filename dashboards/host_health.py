"""The database, the gateway and the processes of one host."""

from __future__ import annotations

from dashboards.board import Section, equal_row
from dashboards.panels import LOOK, NOW, QUIET, Panel, Query, graph_panel, state_panel
from dashboards.words import NO_AGENT, PROCESSES, SOUND, UP


def database() -> Section:
    return Section(
        "Database",
        [equal_row(8, _size(), _holders(), _integrity())],
    )


def processes() -> Section:
    return Section(
        "Gateway and processes",
        [equal_row(8, _gateway(), _starts(), _ticker()), equal_row(8, _processes(), _tasks())],
    )


def _size() -> Panel:
    return graph_panel(
        "Pages and WAL of state.db",
        "What the database file holds, what of it is unused, and the write-ahead log. A WAL that "
        "only grows has a reader or writer that never lets go: `hermes-exporter status` names the "
        "processes. Unused pages come back only by VACUUM.",
        [
            Query(
                "sum((hermes_state_db_pages{<home>} - hermes_state_db_free_pages{<home>}) * "
                "hermes_state_db_page_size_bytes{<home>})",
                "in use",
            ),
            Query(
                "sum(hermes_state_db_free_pages{<home>} * hermes_state_db_page_size_bytes{<home>})",
                "unused",
            ),
            Query('sum(hermes_disk_bytes{<home>, kind="state_wal"})', "WAL"),
        ],
        unit="bytes",
        stacked=True,
        colours={"in use": "blue", "unused": QUIET, "WAL": "purple"},
        no_data=NO_AGENT,
    )


def _holders() -> Panel:
    return graph_panel(
        "Processes that lost the database",
        "Any above zero is an emergency. Deleted WAL: the process looks healthy and saves nothing; "
        "save its conversation by hand, then restart it. Lost lock: anyone who opens the database "
        "carelessly now destroys what it writes; stop other tools, then restart it.",
        [
            Query("sum(hermes_state_db_deleted_wal_holders{<home>})", "write into a deleted WAL"),
            Query("sum(hermes_state_db_lockless_holders{<home>})", "lost their lock"),
        ],
        colours={"write into a deleted WAL": NOW, "lost their lock": LOOK},
        reaches=1,
        no_data=NO_AGENT,
    )


def _integrity() -> Panel:
    return state_panel(
        "Database soundness",
        "The last rare check of each database. Damaged: stop Hermes, keep a copy of the home, let "
        "`hermes doctor` repair it. The pruner and the reaper leave a damaged database alone.",
        Query("min by (instance, home) (hermes_state_db_integrity_ok{<home>})", "{{home}}"),
        words=SOUND,
        no_data="Not checked yet: the check waits for a quiet moment",
    )


def _gateway() -> Panel:
    return state_panel(
        "Gateway",
        "Whether the gateway of each home runs; absent where there never was one. Down: chats get "
        "no answer. Start it, and look at `logs/gateway.log` for why it left.",
        Query("max by (instance, home) (hermes_gateway_up{<home>})", "{{home}}"),
        words=UP,
        no_data="No home has a gateway",
    )


def _starts() -> Panel:
    return graph_panel(
        "Starts of the gateway in 10 minutes",
        "More than one or two is a restart storm: stop the supervisor, then look at "
        "`logs/gateway.log`. The age shows how long the present one has run.",
        [
            Query("max by (instance, home) (hermes_gateway_starts_recent{<home>})", "{{home}}"),
            Query("time() - max(hermes_gateway_start_time_seconds{<home>})", "age of the youngest"),
        ],
        colours={"age of the youngest": QUIET},
        right={"age of the youngest": "s"},
        reaches=1,
        no_data="No home has a gateway",
    )


def _ticker() -> Panel:
    return graph_panel(
        "Silence of the cron ticker",
        "Hermes's cron goes round every minute. Silent for longer: no job runs. Restart the "
        "gateway; jobs that were missed are not made up for.",
        Query(
            "time() - max by (instance, home) (hermes_cron_ticker_timestamp_seconds{<home>})",
            "{{home}}",
        ),
        unit="s",
        no_data="No home has a cron ticker",
    )


def _processes() -> Panel:
    return graph_panel(
        "Processes that have a database open",
        "Who could be hosting a session. Zero with open sessions: they are dead, or hidden from "
        "the agent. `other` keeps sessions unknown: `hermes-exporter explain ID` names the "
        "process.",
        Query("sum by (kind) (hermes_processes{<home>})", "{{kind}}"),
        stacked=True,
        colours=PROCESSES,
        no_data=NO_AGENT,
    )


def _tasks() -> Panel:
    return graph_panel(
        "Kanban tasks whose worker is dead",
        "Tasks that say they run while their process is gone. Hermes takes them back after a "
        "while; if they stay, give them back on the board.",
        Query("sum by (instance, home) (hermes_kanban_tasks_dead_owner{<home>})", "{{home}}"),
        shades=LOOK,
        reaches=1,
        no_data="No home has a kanban board",
    )
