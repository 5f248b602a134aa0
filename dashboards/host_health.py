"""The database, the gateway and the processes of one host."""

from __future__ import annotations

from dashboards.board import Section, equal_row
from dashboards.panels import LOOK, NOW, QUIET, Panel, Query, graph_panel, state_panel
from dashboards.words import DAYS, MINUTES, NO_AGENT, PROCESSES, SOUND, UP


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
        "Size of the database file, its unused pages, and the write-ahead log. A WAL that only "
        "grows: a reader or writer never ends its transaction; `hermes-exporter status` names "
        "the processes. Unused pages become free only by VACUUM.",
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
        "Any value above zero is an emergency. Deleted WAL: the process looks healthy and saves "
        "nothing; save its conversation by hand, then restart it. Lost lock: a tool that opens "
        "the database now can destroy what the process writes; stop other tools, then restart "
        "it.",
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
        "The last integrity check of each database. Damaged: stop Hermes, keep a copy of the "
        "home, let `hermes doctor` repair it. The pruner and the reaper do not touch a damaged "
        "database.",
        Query("min by (instance, home) (hermes_state_db_integrity_ok{<home>})", "{{home}}"),
        words=SOUND,
        no_data="Not checked yet: the check waits for a quiet moment",
    )


def _gateway() -> Panel:
    return state_panel(
        "Gateway",
        "Does the gateway of each home run? Absent if there never was one. Down: chats get no "
        "answer. Start it, and check `logs/gateway.log` for the cause.",
        Query("max by (instance, home) (hermes_gateway_up{<home>})", "{{home}}"),
        words=UP,
        no_data="No home has a gateway",
    )


def _starts() -> Panel:
    return graph_panel(
        "Starts of the gateway in 10 minutes",
        "More than one or two restarts: a restart loop. Stop the supervisor, then check "
        "`logs/gateway.log`. The age is the uptime of the present gateway.",
        [
            Query("max by (instance, home) (hermes_gateway_starts_recent{<home>})", "{{home}}"),
            Query(
                "(time() - max(hermes_gateway_start_time_seconds{<home>})) / 86400",
                "age of the youngest",
            ),
        ],
        colours={"age of the youngest": QUIET},
        right={"age of the youngest": DAYS},
        reaches=1,
        no_data="No home has a gateway",
    )


def _ticker() -> Panel:
    return graph_panel(
        "Silence of the cron ticker",
        "Hermes's cron ticks every minute. No tick for longer: no job runs. Restart the "
        "gateway; missed jobs are not repeated.",
        Query(
            "(time() - max by (instance, home) "
            "(hermes_cron_ticker_timestamp_seconds{<home>})) / 60",
            "{{home}}",
        ),
        unit=MINUTES,
        no_data="No home has a cron ticker",
    )


def _processes() -> Panel:
    return graph_panel(
        "Processes that have a database open",
        "Processes that could run a session. Zero with open sessions: these are dead, or their "
        "processes are hidden from the agent. `other` keeps sessions unknown: `hermes-exporter "
        "explain ID` names the process.",
        Query("sum by (kind) (hermes_processes{<home>})", "{{kind}}"),
        stacked=True,
        colours=PROCESSES,
        no_data=NO_AGENT,
    )


def _tasks() -> Panel:
    return graph_panel(
        "Kanban tasks whose worker is dead",
        "Tasks that are marked as running although their process is gone. Hermes releases them "
        "after a while; if they stay, release them on the board.",
        Query("sum by (instance, home) (hermes_kanban_tasks_dead_owner{<home>})", "{{home}}"),
        shades=LOOK,
        reaches=1,
        no_data="No home has a kanban board",
    )
