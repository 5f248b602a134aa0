"""Writes the files that Hermes 0.19.0 keeps in a home besides its databases and checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime

from exporter.demo.fabricate.conversation import Story
from exporter.demo.fabricate.database import RouteRow
from exporter.demo.fabricate.shadow import write

NO_PID = 1 << 22
"""One above the highest PID Linux can give (and far above macOS's): never a living process."""
_NOBODYS_START_TICKS = 4242


def write_snapshot(sessions_dir: str, story: Story) -> None:
    """`session_<id>.json`: the whole conversation, as written at every step of it."""
    session = story.session
    content = {
        "session_id": session.id,
        "model": session.model,
        "base_url": "http://127.0.0.1:9/v1",
        "platform": session.source,
        "session_start": _local(session.started_at),
        "last_updated": _local(_last_at(story)),
        "system_prompt": session.system_prompt,
        "tools": [],
        "message_count": len(story.messages),
        "messages": _messages(story),
    }
    _write_json(f"{sessions_dir}/session_{session.id}.json", content, _last_at(story), indent=2)


def write_journal(sessions_dir: str, story: Story) -> None:
    """`<id>.jsonl`: a gateway's conversation, one message a line, as Hermes 0.13 wrote it."""
    lines = "".join(json.dumps(message) + "\n" for message in _messages(story))
    _write_at(f"{sessions_dir}/{story.session.id}.jsonl", lines, _last_at(story))


def write_request_dump(sessions_dir: str, story: Story, when: float) -> None:
    """`request_dump_<id>_<time>.json`: a request that the model's provider refused."""
    session = story.session
    content = {
        "timestamp": _local(when),
        "session_id": session.id,
        "reason": "non_retryable_client_error",
        "request": {
            "method": "POST",
            "url": "http://127.0.0.1:9/v1/chat/completions",
            "headers": {"Authorization": "Bearer invented", "Content-Type": "application/json"},
            "body": {"model": session.model, "messages": _messages(story)},
        },
        "error": {"type": "BadRequestError", "message": "invented", "status_code": 400},
    }
    moment = datetime.fromtimestamp(when).strftime("%Y%m%d_%H%M%S_%f")  # noqa: DTZ006
    name = f"request_dump_{session.id}_{moment}.json"
    _write_json(f"{sessions_dir}/{name}", content, when, indent=2)


def routes(scope: str, stories: Iterable[Story]) -> list[RouteRow]:
    """The routing rows of the gateway chats among these sessions that are still open."""
    rows = []
    for story in stories:
        session = story.session
        if session.session_key is None or session.ended_at is not None:
            continue
        entry = {
            "session_key": session.session_key,
            "session_id": session.id,
            "created_at": _local(session.started_at),
            "updated_at": _local(_last_at(story)),
            "platform": session.source,
            "chat_type": session.chat_type,
            "total_tokens": session.input_tokens + session.output_tokens,
            "estimated_cost_usd": session.estimated_cost_usd or 0.0,
            "suspended": False,
            "resume_pending": False,
            "origin": {"platform": session.source, "chat_id": session.chat_id, "chat_type": "dm"},
        }
        rows.append(RouteRow(scope, session.session_key, json.dumps(entry), _last_at(story)))
    return rows


def write_routing_mirror(sessions_dir: str, rows: Iterable[RouteRow], when: float) -> None:
    """`sessions.json`: the routing rows once more, as a file."""
    entries = {row.session_key: json.loads(row.entry_json) for row in rows}
    mirror = {"_README": "Mirror of the gateway's routing index.", **entries}
    _write_json(sessions_dir + "/sessions.json", mirror, when, indent=2)


def write_dead_gateway(home: str, *, started_at: float, last_seen_at: float) -> None:
    """What a gateway leaves that was killed: its files still say that it runs."""
    record = {
        "pid": NO_PID,
        "kind": "hermes-gateway",
        "argv": ["hermes", "gateway", "run"],
        "start_time": _NOBODYS_START_TICKS,
    }
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
    listed = [
        {"id": f"{job:012x}", "name": f"example {job}", "enabled": True} for job in range(jobs)
    ]
    os.makedirs(home + "/cron/output")
    _write_json(home + "/cron/jobs.json", {"jobs": listed}, last_tick_at, indent=2)
    for name in ("ticker_heartbeat", "ticker_last_success"):
        _write_at(f"{home}/cron/{name}", f"{last_tick_at}", last_tick_at)
    for job in range(jobs):
        folder = f"{home}/cron/output/{job:012x}"
        os.mkdir(folder)
        for run in range(runs):
            when = last_tick_at - (run + 1) * 43_200
            moment = datetime.fromtimestamp(when).strftime("%Y-%m-%d_%H-%M-%S")  # noqa: DTZ006
            _write_at(f"{folder}/{moment}.md", "# Invented result\n\nNothing to report.\n", when)


def write_logs(home: str, *, lines: int, last_at: float) -> None:
    """The logs, in the format of Hermes's own."""
    os.makedirs(home + "/logs")
    for name, level in (("agent", "INFO"), ("errors", "WARNING"), ("gateway", "INFO")):
        moments = (_local(last_at - 60.0 * back)[:19] for back in range(lines, 0, -1))
        text = "".join(f"{at.replace('T', ' ')},000 {level} example: invented\n" for at in moments)
        _write_at(f"{home}/logs/{name}.log", text, last_at)


def _messages(story: Story) -> list[dict[str, str | None]]:
    return [{"role": message.role, "content": message.content} for message in story.messages]


def _last_at(story: Story) -> float:
    return story.messages[-1].timestamp if story.messages else story.session.started_at


def _local(when: float) -> str:
    """Hermes writes these as naive local time."""
    return datetime.fromtimestamp(when).isoformat()  # noqa: DTZ006


def _write_json(path: str, content: object, when: float, indent: int | None = None) -> None:
    _write_at(path, json.dumps(content, indent=indent), when)


def _write_at(path: str, text: str, when: float) -> None:
    write(path, text.encode())
    os.utime(path, (when, when))
