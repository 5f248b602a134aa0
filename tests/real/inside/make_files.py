"""The rest of what a release writes: transcripts, request dumps, cron, kanban, gateway, leases."""

from __future__ import annotations

import datetime
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def make_transcripts(
    home: Path,
    session_ids: Sequence[str],
    dumped: Sequence[str] | None = None,
    characters: int = 9000,
) -> int:
    """The JSON transcript of each session, and a request dump of each or of those `dumped`.

    By the agent's own writers; it is not started, for it would look for a model on the network.
    """
    from run_agent import AIAgent  # type: ignore[import-not-found]

    folder = home / "sessions"
    folder.mkdir(exist_ok=True)
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "x" * characters},
    ]
    for session_id in session_ids:
        agent = AIAgent.__new__(AIAgent)
        agent.session_id = session_id
        agent.model = "large-1"
        agent.base_url = "http://127.0.0.1:9/v1"
        agent.platform = "cli"
        agent.session_start = datetime.datetime.now()  # noqa: DTZ005 - as Hermes does
        agent.logs_dir = folder
        agent.session_log_file = folder / f"session_{session_id}.json"
        agent.tools = []
        agent.verbose_logging = True
        agent.log_prefix = ""
        agent.quiet_mode = True
        agent.suppress_status_output = True
        agent.api_mode = "chat_completions"
        agent.client = SimpleNamespace(api_key="sk-not-a-key")
        agent._cached_system_prompt = "You are careful."
        agent._session_json_enabled = True
        agent._vprint = lambda *_, **__: None
        agent._save_session_log(messages)
        if dumped is None or session_id in dumped:
            agent._dump_api_request_debug({"messages": messages}, reason="test")
    return len(session_ids)


def make_cron() -> dict[str, Any]:
    """A job with two outputs, and the ticker's heartbeat where the release has one."""
    from cron import jobs  # type: ignore[import-not-found]

    job = jobs.create_job("look at the news", "every 2h", name="news")
    for output in ("first", "second"):
        jobs.save_job_output(job["id"], output)
    has_ticker = hasattr(jobs, "record_ticker_heartbeat")
    if has_ticker:
        jobs.record_ticker_heartbeat(success=True)
    return {"ticker": has_ticker}


def make_kanban(live_pid: int) -> dict[str, int]:
    """Running tasks: one whose worker is dead, one whose worker lives; and one still waiting."""
    from hermes_cli import kanban_db  # type: ignore[import-not-found]

    with subprocess.Popen(["true"]) as worker:
        dead_pid = worker.pid
    connection = kanban_db.connect()
    for pid in (dead_pid, live_pid):
        task = kanban_db.create_task(connection, title="work", assignee="default")
        kanban_db.claim_task(connection, task)
        kanban_db._set_worker_pid(connection, task, pid)
    kanban_db.create_task(connection, title="wait", assignee="default")
    connection.close()
    return {"dead": 1, "live": 1}


def make_dead_gateway() -> None:
    """The files of a gateway that died without cleaning up: this process's, soon gone."""
    from gateway import status  # type: ignore[import-not-found]

    status.acquire_gateway_runtime_lock()
    status.write_pid_file()
    status.write_runtime_status(gateway_state="running")
    if hasattr(status, "record_start_and_check_storm"):
        for _ in range(3):
            status.record_start_and_check_storm()


def make_lease(session_id: str) -> bool:
    """A lease of this process on a session, where the release has leases."""
    try:
        from hermes_cli.active_sessions import (  # type: ignore[import-not-found]
            try_acquire_active_session,
        )
    except ImportError:
        return False
    lease, refusal = try_acquire_active_session(
        session_id=session_id, surface="cli", config={"max_concurrent_sessions": 100}
    )
    if lease is None:
        raise SystemExit(f"no lease: {refusal}")
    return True


def make_leftovers(home: Path) -> None:
    """Logs, caches and files that only `other` can hold, as they are found in the field."""
    for path, size in [
        ("logs/agent.log", 7000),
        ("logs/gateway-exit-diag.log", 10),
        ("cache/images/a.png", 40_000),
        ("image_cache/b.png", 5000),
        ("sessions/.sessions_abc.tmp", 100),
        ("sessions/saved/export.json", 3000),
        ("state-snapshots/20260101T000000Z/state.db", 8192),
        ("state.db.malformed-backup-20260101_000000", 12288),
        ("something/new/and/deep.bin", 123_456),
        ("config.yaml", 20),
        ("empty", 0),
    ]:
        target = home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"x" * size)
    os.link(home / "something/new/and/deep.bin", home / "something/hard-link.bin")
    (home / "something" / "symlink").symlink_to("/usr")
    (home / "something" / "loop").symlink_to("loop")
    sparse = home / "something" / "sparse.bin"
    with sparse.open("wb") as file:
        file.truncate(50_000_000)
