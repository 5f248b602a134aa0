"""Every Hermes release that is supported: what the agent says equals what others count.

For each release a home is made through its own classes, two of its processes hold it open, one of
them with messages that only the write-ahead log has; then one agent scans it, and sqlite3, du,
find and git count the same things on their own.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.real.agent import Metrics, agent
from tests.real.counts import (
    Database,
    allocated_bytes,
    cumulative,
    files_below,
    git_objects,
    git_refs,
    inventory,
)
from tests.real.hermes import VERSIONS
from tests.real.holders import Holder, holder
from tests.real.homes import MadeHome, make_home
from tests.real.waiting import wait_until

MESSAGE_BOUNDS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
IDLE_BOUNDS = (60, 600, 3600, 21600, 86400, 604800, 2592000, 7776000)
TOKENS = ("input", "output", "cache_read", "cache_write", "reasoning")


@dataclass(frozen=True)
class Scanned:
    """A home, what the agent says of it, and the means to count it independently."""

    home: MadeHome
    metrics: Metrics
    database: Database
    gateway: Holder
    allocated_bytes: int
    files: int
    active: str
    """SQL that is true of a message which is part of its conversation."""
    open_sessions: list[dict[str, Any]]
    """What /api/v1/sessions answers."""
    untouched: bool
    """Whether the home was the same before and after the agent ran."""
    log: str

    def by(self, name: str, *keys: str) -> dict[tuple[str, ...], float]:
        """A family's samples, without those that say 0: whether those are there is no matter."""
        return {key: value for key, value in self.metrics.by(name, *keys).items() if value}

    def one(self, name: str) -> float:
        """The only sample of a family."""
        (value,) = self.metrics.by(name, "home").values()
        return value

    def grouped(self, sql: str) -> dict[tuple[str, ...], float]:
        """Rows as {all columns but the last: the last}."""
        rows = [tuple(row.values()) for row in self.database.rows(sql)]
        return {tuple(map(str, row[:-1])): float(row[-1]) for row in rows if row[-1]}

    def messages_of_sessions(self) -> list[dict[str, Any]]:
        """Each session with its source, its clocks and its number of messages."""
        return self.database.rows(
            "SELECT s.id, s.source, s.started_at, s.ended_at, s.end_reason, "
            f"COUNT(m.id) FILTER (WHERE {self.active}) AS messages, MAX(m.timestamp) AS newest "
            "FROM sessions s LEFT JOIN messages m ON m.session_id = s.id GROUP BY s.id"
        )


@pytest.fixture(
    scope="module",
    params=[pytest.param(version, marks=pytest.mark.xdist_group(version)) for version in VERSIONS],
)
def scanned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scanned]:
    folder = tmp_path_factory.mktemp(f"hermes-{request.param}")
    home = make_home(request.param, folder)
    with (
        holder(home.hermes, home.path, ("gateway", "run")) as gateway,
        holder(home.hermes, home.path, ("chat", "--cli")) as cli,
    ):
        gateway.ask("become_gateway")
        gateway.ask("append", session=home.sessions["chat_direct"], count=3)
        cli.ask("append", session=home.sessions["after_turn"], role="assistant")
        before = inventory(home.path)
        with agent(folder, [home.path]) as running:
            # Processes of other tests may blind a scan.
            metrics = wait_until(lambda: seeing(running.metrics()), "the agent sees everything")
            log = running.log()
            _, open_sessions = running.get("/api/v1/sessions")
        untouched = inventory(home.path) == before
        yield Scanned(
            home=home,
            metrics=metrics,
            database=(database := Database(home.path / "state.db", folder)),
            gateway=gateway,
            allocated_bytes=allocated_bytes(home.path),
            files=files_below(home.path),
            active="m.active IS NOT 0" if "active" in database.columns("messages") else "1",
            open_sessions=json.loads(open_sessions),
            untouched=untouched,
            log=log,
        )


def seeing(metrics: Metrics) -> Metrics | None:
    """The metrics, if nothing was hidden from the scan that they are of: neither processes nor a
    board, which another process may be about to close.
    """
    blind = any(metrics.by("hermes_exporter_blind", "reason").values())
    return metrics if not blind and metrics.by("hermes_kanban_tasks_dead_owner", "home") else None


def test_home_is_up(scanned: Scanned) -> None:
    assert scanned.one("hermes_home_up") == 1, scanned.log


def test_scans_leave_the_home_as_it_was(scanned: Scanned) -> None:
    assert scanned.untouched


def test_open_sessions_by_source(scanned: Scanned) -> None:
    assert scanned.by("hermes_sessions_open", "source") == scanned.grouped(
        "SELECT source, COUNT(*) FROM sessions WHERE ended_at IS NULL GROUP BY source"
    )


def test_held_sessions(scanned: Scanned) -> None:
    """Routed chats, bound topics and whatever else this release can leave open rightly."""
    names = {"chat_direct", "chat_group", "chat_channel", "topic", "handoff", "with_goal"}
    if scanned.database.columns("compression_locks"):
        names.add("compressing")
    held = {
        session["id"]
        for session in scanned.open_sessions
        if any(evidence["says"] == "held" for evidence in session["evidence"])
    }
    assert held == {scanned.home.sessions[name] for name in names}


def test_ended_sessions_by_source_and_reason(scanned: Scanned) -> None:
    """A reason that a client made up is shown as `other`."""
    assert scanned.by("hermes_sessions_ended", "source", "end_reason") == scanned.grouped(
        "SELECT source, CASE end_reason WHEN 'reason of a client' THEN 'other' "
        "ELSE end_reason END AS reason, COUNT(*) FROM sessions "
        "WHERE ended_at IS NOT NULL GROUP BY source, reason"
    )


def test_messages_per_session(scanned: Scanned) -> None:
    """By itself for the few sources with the most sessions, all others together."""
    shown = scanned.metrics.by("hermes_session_messages_bucket", "source", "le")
    named = {source for source, _ in shown}
    by_source: dict[str, list[float]] = defaultdict(list)
    for session in scanned.messages_of_sessions():
        by_source[session["source"] if session["source"] in named else "other"].append(
            session["messages"]
        )
    buckets: dict[str, dict[float, float]] = defaultdict(dict)
    for (source, bound), count in shown.items():
        buckets[source][float(bound)] = count
    assert len(named) > 3
    assert buckets == {
        source: cumulative(values, MESSAGE_BOUNDS) for source, values in by_source.items()
    }
    sums = {(source,): float(sum(values)) for source, values in by_source.items()}
    assert scanned.metrics.by("hermes_session_messages_sum", "source") == sums


def test_idle_time_of_open_sessions(scanned: Scanned) -> None:
    """As of some moment of the scan: by its end one may have come to be in another bucket."""
    ended = scanned.one("hermes_exporter_scan_timestamp_seconds")
    began = ended - scanned.one("hermes_exporter_scan_duration_seconds")
    active_at = [
        max(session["started_at"], session["newest"] or 0)
        for session in scanned.messages_of_sessions()
        if session["ended_at"] is None
    ]
    shown = scanned.metrics.by("hermes_session_open_idle_seconds_bucket", "le")
    buckets = {float(bound): count for (bound,), count in shown.items()}
    most, fewest = (
        cumulative([moment - each for each in active_at], IDLE_BOUNDS) for moment in (began, ended)
    )
    assert buckets.keys() == most.keys()
    assert all(fewest[bound] <= buckets[bound] <= most[bound] for bound in buckets)


def test_empty_and_trivial_sessions(scanned: Scanned) -> None:
    ended = [s["messages"] for s in scanned.messages_of_sessions() if s["ended_at"] is not None]
    assert scanned.one("hermes_sessions_empty") == sum(n == 0 for n in ended) > 0
    assert scanned.one("hermes_sessions_trivial") == sum(1 <= n <= 5 for n in ended) > 0


def test_longest_sessions(scanned: Scanned) -> None:
    sessions = scanned.messages_of_sessions()
    open_sizes = [s["messages"] for s in sessions if s["ended_at"] is None]
    assert scanned.metrics.by("hermes_sessions_marathon", "level") == {
        ("near",): sum(170 <= size <= 200 for size in open_sizes),
        ("over",): sum(size > 200 for size in open_sizes),
    }
    assert scanned.one("hermes_session_messages_max") == max(s["messages"] for s in sessions)


def test_oldest_open_session(scanned: Scanned) -> None:
    oldest = scanned.database.value("SELECT MIN(started_at) FROM sessions WHERE ended_at IS NULL")
    shown = scanned.one("hermes_session_open_oldest_timestamp_seconds")
    assert shown == pytest.approx(oldest, abs=0.001)


def test_sessions_written_after_their_end(scanned: Scanned) -> None:
    expected: dict[tuple[str, ...], float] = defaultdict(float)
    for session in scanned.messages_of_sessions():
        if session["ended_at"] is not None and (session["newest"] or 0) > session["ended_at"]:
            expected[session["end_reason"],] += 1
    assert expected
    assert scanned.by("hermes_sessions_written_after_end", "end_reason") == expected


def test_tool_streaks_of_open_sessions(scanned: Scanned) -> None:
    """Counted backwards from the newest tool answer of each turn that is still open."""
    conversations: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in scanned.database.rows(
        "SELECT m.session_id, m.role, m.tool_name, m.tool_calls, m.content FROM messages m "
        "JOIN sessions s ON s.id = m.session_id "
        f"WHERE s.ended_at IS NULL AND {scanned.active} ORDER BY m.timestamp DESC, m.id DESC"
    ):
        conversations[row["session_id"]].append(row)
    errors = repeats = 0
    for newest_first in conversations.values():
        last = newest_first[0]
        if last["role"] == "assistant" and not last["tool_calls"]:
            continue
        turn = takewhile(lambda row: row["role"] != "user", newest_first)
        answers = [row for row in turn if row["role"] == "tool"]
        failed = takewhile(lambda row: row["content"].startswith("Error"), answers)
        errors = max(errors, len(list(failed)))
        names = [row["tool_name"] for row in answers]
        repeats = max(repeats, len(next((list(same) for _, same in groupby(names)), [])))
    assert errors > 0
    assert scanned.one("hermes_tool_error_streak_max") == errors
    assert scanned.one("hermes_tool_repeat_streak_max") == repeats


def test_messages_counter(scanned: Scanned) -> None:
    assert scanned.by("hermes_messages_total", "source") == scanned.grouped(
        "SELECT s.source, COUNT(*) FROM messages m JOIN sessions s ON s.id = m.session_id "
        f"WHERE {scanned.active} GROUP BY s.source"
    )


@pytest.mark.parametrize("what", ["tool_call", "api_call"])
def test_call_counters(scanned: Scanned, what: str) -> None:
    assert scanned.by(f"hermes_{what}s_total", "source") == scanned.grouped(
        f"SELECT source, SUM({what}_count) FROM sessions GROUP BY source"
    )


def test_tokens_by_model(scanned: Scanned) -> None:
    expected: dict[tuple[str, ...], float] = {}
    for kind in TOKENS:
        for (source, model), count in _spent(scanned, f"{kind}_tokens").items():
            expected[source, model, kind] = count
    assert scanned.by("hermes_tokens_total", "source", "model", "kind") == expected


def test_cost_by_model(scanned: Scanned) -> None:
    expected: dict[tuple[str, ...], float] = {}
    for status in ("estimated", "actual"):
        for (source, model), cost in _spent(scanned, f"{status}_cost_usd").items():
            expected[source, model, status] = cost
    shown = scanned.by("hermes_cost_usd_total", "source", "model", "status")
    assert shown == pytest.approx(expected)


def _spent(scanned: Scanned, column: str) -> dict[tuple[str, ...], float]:
    """Sums by source and model: from 0.19 by call, with the rest on the session's own model."""
    if not scanned.database.columns("session_model_usage"):
        return scanned.grouped(
            f"SELECT source, model, SUM({column}) FROM sessions GROUP BY source, model"
        )
    return scanned.grouped(
        f"""
        WITH by_call AS (
            SELECT s.source, u.model, u.{column} AS amount
            FROM session_model_usage u JOIN sessions s ON s.id = u.session_id
        ), rest AS (
            SELECT source, model, COALESCE({column}, 0) - (
                SELECT COALESCE(SUM(u.{column}), 0) FROM session_model_usage u
                WHERE u.session_id = sessions.id AND u.task = ''
            ) AS amount FROM sessions
        )
        SELECT source, model, SUM(amount) AS total
        FROM (SELECT * FROM by_call UNION ALL SELECT * FROM rest WHERE amount > 1e-9)
        GROUP BY source, model HAVING total > 1e-9
        """
    )


def test_disk_kinds_add_up_to_du(scanned: Scanned) -> None:
    assert sum(scanned.by("hermes_disk_bytes", "kind").values()) == scanned.allocated_bytes


def test_disk_files_add_up_to_find(scanned: Scanned) -> None:
    assert sum(scanned.by("hermes_disk_files", "kind").values()) == scanned.files


def test_disk_bytes_by_kind(scanned: Scanned) -> None:
    """A folder that several kinds share is counted with the one that owns it."""
    path = scanned.home.path
    checkpoints = path / "checkpoints"
    legacy = [entry for entry in checkpoints.iterdir() if len(entry.name) == 16]
    shown = scanned.metrics.by("hermes_disk_bytes", "kind")
    assert len(legacy) == 2
    for kind, parts, owned in [
        ("state_db", [path / "state.db"], None),
        ("state_wal", [path / "state.db-wal", path / "state.db-shm"], None),
        ("checkpoints_legacy", legacy, None),
        ("checkpoints_store", [checkpoints / "store"], checkpoints),
        ("checkpoints_archive", list(checkpoints.glob("legacy-*")), None),
        ("request_dumps", list(path.glob("sessions/request_dump_*")), None),
        ("transcripts", _transcripts(path), path / "sessions"),
        ("logs", [path / "logs", *path.glob("*.log")], None),
        ("cron", [path / "cron"], None),
    ]:
        folder = owned.stat().st_blocks * 512 if owned else 0
        assert shown[kind,] == allocated_bytes(*parts) + folder > 0, kind


def test_transcripts_and_request_dumps(scanned: Scanned) -> None:
    sessions = scanned.home.path / "sessions"
    files = scanned.metrics.by("hermes_disk_files", "kind")
    transcripts = len(_transcripts(scanned.home.path))
    assert files["transcripts",] == transcripts >= scanned.home.facts["transcripts"]
    assert files["request_dumps",] == len(list(sessions.glob("request_dump_*"))) > 0


def test_checkpoint_projects(scanned: Scanned) -> None:
    facts = scanned.home.facts["checkpoints"]
    store = scanned.home.path / "checkpoints" / "store"
    shown = scanned.by("hermes_checkpoint_projects", "layout", "state")
    assert shown == {
        (layout, state): count
        for layout in ("legacy", "store")
        for state, count in facts[layout].items()
    }
    assert sum(shown["store", state] for state in facts["store"]) == len(git_refs(store))
    objects = git_objects(store)
    assert objects["garbage"] == 0
    loose = objects["count"] * 4096
    assert scanned.metrics.by("hermes_disk_bytes", "kind")["checkpoints_store",] > loose


def test_filesystem(scanned: Scanned) -> None:
    found = os.statvfs(scanned.home.path)
    assert scanned.one("hermes_filesystem_size_bytes") == found.f_blocks * found.f_frsize
    assert 0 < scanned.one("hermes_filesystem_avail_bytes") <= found.f_blocks * found.f_frsize


def test_database_health(scanned: Scanned) -> None:
    for metric, sql in {
        "schema_version": "SELECT MAX(version) FROM schema_version",
        "pages": "SELECT page_count FROM pragma_page_count",
        "free_pages": "SELECT freelist_count FROM pragma_freelist_count",
        "page_size_bytes": "SELECT page_size FROM pragma_page_size",
    }.items():
        assert scanned.one(f"hermes_state_db_{metric}") == scanned.database.value(sql), metric


def test_holders_are_seen_and_sound(scanned: Scanned) -> None:
    processes = scanned.by("hermes_processes", "kind")
    assert processes == {("gateway",): 1, ("cli",): 1}
    assert scanned.one("hermes_state_db_lockless_holders") == 0
    assert scanned.one("hermes_state_db_deleted_wal_holders") == 0


def test_running_gateway(scanned: Scanned) -> None:
    assert scanned.one("hermes_gateway_up") == 1
    started = psutil.Process(scanned.gateway.pid).create_time()
    assert scanned.one("hermes_gateway_start_time_seconds") == pytest.approx(started, abs=5)


def test_gateway_starts(scanned: Scanned) -> None:
    """The ledger of starts is new in 0.19; older releases have no such series, or say 0."""
    starts = scanned.metrics.by("hermes_gateway_starts_recent", "home")
    expected = _lines(scanned.home.path / "gateway-starts.log")
    assert sum(starts.values()) == expected


def test_cron_ticker(scanned: Scanned) -> None:
    """The ticker's heartbeat is new in 0.18; a home without one has no such series."""
    shown = list(scanned.metrics.by("hermes_cron_ticker_timestamp_seconds", "home").values())
    if scanned.home.facts["cron"]["ticker"]:
        noted = float((scanned.home.path / "cron" / "ticker_heartbeat").read_text())
        assert shown == [pytest.approx(noted, abs=0.001)]
    else:
        assert shown == []


def test_kanban_tasks_of_dead_workers(scanned: Scanned) -> None:
    assert scanned.one("hermes_kanban_tasks_dead_owner") == scanned.home.facts["kanban"]["dead"]


def _transcripts(home: Path) -> list[Path]:
    return [*home.glob("sessions/session_*.json"), *home.glob("sessions/*.jsonl")]


def _lines(path: Path) -> int:
    return len(path.read_text().split()) if path.exists() else 0
