"""Writes the files that Hermes 0.19.0 keeps in a home besides its databases and checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime

from exporter.demo.checkpoints import write
from exporter.demo.conversation import Story
from exporter.demo.database import Row

NO_PID = 1 << 22
"""One above the highest PID Linux can give (and far above macOS's): never a living process."""


def write_snapshot(sessions_dir: str, story: Story) -> None:
    """`session_<id>.json`: the whole conversation, as written at every step of it."""
    session = story.session
    content = {
        "session_id": session["id"],
        "model": session["model"],
        "base_url": "http://127.0.0.1:9/v1",
        "platform": session["source"],
        "session_start": _local(session["started_at"]),
        "last_updated": _local(story.last_at),
        "system_prompt": session["system_prompt"],
        "tools": [],
        "message_count": len(story.messages),
        "messages": _messages(story),
    }
    _write_json(f"{sessions_dir}/session_{session['id']}.json", content, story.last_at, indent=2)


def write_journal(sessions_dir: str, story: Story) -> None:
    """`<id>.jsonl`: a gateway's conversation, one message a line, as Hermes 0.13 wrote it."""
    lines = "".join(json.dumps(message) + "\n" for message in _messages(story))
    _write_at(f"{sessions_dir}/{story.session['id']}.jsonl", lines, story.last_at)


def write_request_dump(sessions_dir: str, story: Story) -> None:
    """`request_dump_<id>_<time>.json`: a request that the model's provider refused."""
    session, when = story.session, story.last_at
    content = {
        "timestamp": _local(when),
        "session_id": session["id"],
        "reason": "non_retryable_client_error",
        "request": {
            "method": "POST",
            "url": "http://127.0.0.1:9/v1/chat/completions",
            "headers": {"Authorization": "Bearer invented", "Content-Type": "application/json"},
            "body": {"model": session["model"], "messages": _messages(story)},
        },
        "error": {"type": "BadRequestError", "message": "invented", "status_code": 400},
    }
    moment = datetime.fromtimestamp(when).strftime("%Y%m%d_%H%M%S_%f")  # noqa: DTZ006
    _write_json(
        f"{sessions_dir}/request_dump_{session['id']}_{moment}.json", content, when, indent=2
    )


def routes(scope: str, stories: Iterable[Story]) -> list[Row]:
    """The routing rows of the gateway chats among these sessions that are still open."""
    chats = (story for story in stories if story.session["session_key"] is not None)
    return [_route(scope, story) for story in chats if story.session["ended_at"] is None]


def _route(scope: str, story: Story) -> Row:
    session = story.session
    entry = {
        "session_key": session["session_key"],
        "session_id": session["id"],
        "created_at": _local(session["started_at"]),
        "updated_at": _local(story.last_at),
        "platform": session["source"],
        "chat_type": session["chat_type"],
        "total_tokens": session.get("input_tokens", 0) + session.get("output_tokens", 0),
        "estimated_cost_usd": session.get("estimated_cost_usd", 0.0),
        "suspended": False,
        "resume_pending": False,
        "origin": {"platform": session["source"], "chat_id": session["chat_id"], "chat_type": "dm"},
    }
    return {
        "scope": scope,
        "session_key": session["session_key"],
        "entry_json": json.dumps(entry),
        "updated_at": story.last_at,
    }


def write_routing_mirror(sessions_dir: str, rows: Iterable[Row], when: float) -> None:
    """`sessions.json`: the routing rows once more, as a file."""
    entries = {row["session_key"]: json.loads(row["entry_json"]) for row in rows}
    mirror = {"_README": "Mirror of the gateway's routing index.", **entries}
    _write_json(sessions_dir + "/sessions.json", mirror, when, indent=2)


def write_dead_gateway(home: str, *, started_at: float, last_seen_at: float) -> None:
    """Write what a killed gateway leaves: its files still say that it runs."""
    argv = ["hermes", "gateway", "run"]
    record = {"pid": NO_PID, "kind": "hermes-gateway", "argv": argv, "start_time": 4242}
    state = record | {
        "gateway_state": "running",
        "exit_reason": None,
        "active_agents": 1,
        "platforms": {"telegram": {"state": "connected"}},
        "updated_at": datetime.fromtimestamp(last_seen_at, UTC).isoformat(),
    }
    _write_json(home + "/gateway.pid", record, started_at)
    _write_json(home + "/gateway.lock", record, started_at)
    _write_json(home + "/gateway_state.json", state, last_seen_at)
    starts = (started_at - 90_000, started_at - 60, started_at)
    _write_at(home + "/gateway-starts.log", "".join(f"{at!r}\n" for at in starts), started_at)


def write_cron(home: str, *, jobs: int, runs: int, last_tick_at: float) -> None:
    """Scheduled jobs, the results of their runs, and when the ticker last went round."""
    names = [f"{job:012x}" for job in range(jobs)]
    listed = [
        {"id": name, "name": f"example {job}", "enabled": True} for job, name in enumerate(names)
    ]
    os.makedirs(home + "/cron/output")
    _write_json(home + "/cron/jobs.json", {"jobs": listed}, last_tick_at, indent=2)
    for name in ("ticker_heartbeat", "ticker_last_success"):
        _write_at(f"{home}/cron/{name}", f"{last_tick_at}", last_tick_at)
    for name in names:
        os.mkdir(f"{home}/cron/output/{name}")
        for run in range(runs):
            when = last_tick_at - (run + 1) * 43_200
            moment = datetime.fromtimestamp(when).strftime("%Y-%m-%d_%H-%M-%S")  # noqa: DTZ006
            path = f"{home}/cron/output/{name}/{moment}.md"
            _write_at(path, "# Invented result\n\nNothing to report.\n", when)


def write_logs(home: str, *, lines: int, last_at: float) -> None:
    """The logs, in the format of Hermes's own."""
    os.makedirs(home + "/logs")
    for name, level in (("agent", "INFO"), ("errors", "WARNING"), ("gateway", "INFO")):
        moments = (_local(last_at - 60.0 * back)[:19] for back in range(lines, 0, -1))
        text = "".join(f"{at.replace('T', ' ')},000 {level} example: invented\n" for at in moments)
        _write_at(f"{home}/logs/{name}.log", text, last_at)


def _messages(story: Story) -> list[Row]:
    return [{"role": each["role"], "content": each["content"]} for each in story.messages]


def _local(when: float) -> str:
    """Hermes writes these as naive local time."""
    return datetime.fromtimestamp(when).isoformat()  # noqa: DTZ006


def _write_json(path: str, content: object, when: float, indent: int | None = None) -> None:
    _write_at(path, json.dumps(content, indent=indent), when)


def _write_at(path: str, text: str, when: float) -> None:
    write(path, text.encode())
    os.utime(path, (when, when))
