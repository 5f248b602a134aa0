"""Sessions of every kind that SessionDB can write, made through SessionDB.

With the gateway's chats they have seven sources, as many as a home may show by name.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from hermes_state import SessionDB  # type: ignore[import-not-found]

from tests.real.inside.clock import DAY, HOUR, MINUTE, ago

SYSTEM_PROMPT = "You are a careful agent. " * 1000


def make_sessions(database: SessionDB) -> dict[str, str]:
    """Write them all; return what each is for, by name."""
    ids = {
        **_open_sessions(database),
        **_ended_sessions(database),
        **_families(database),
        **_rewritten(database),
        **_held(database),
    }
    _spend(database, ids)
    _delegate(ids["delegating"])
    return ids


def _open_sessions(database: SessionDB) -> dict[str, str]:
    with ago(3 * DAY):
        mid_turn = _start(database, "20260101_080000_aaaaaa", "cli", turns=2)
        _tool_calls(database, mid_turn, "read_file", ["Error: no such file"] * 3, answered=True)
        _tool_calls(database, mid_turn, "read_file", ["Error: still none"], answered=False)
    with ago(20 * MINUTE):
        after_turn = _start(database, "20260104_080000_aaaaab", "cli", turns=1)
        _start(database, "20260104_080000_aaaaac", "tui", turns=0)
        _start(database, "cron_job1_20260104_080000", "cron", turns=1)
    _start(database, "client's own [*] id", "api_server", turns=1)
    _start(database, "0b8f0f4e-6a1e-4f0c-9d53-3f2b8a0c9d11", "acp", turns=75)
    _start(database, "0b8f0f4e-6a1e-4f0c-9d53-3f2b8a0c9d12", "acp", turns=90)
    return {"mid_turn": mid_turn, "after_turn": after_turn}


def _ended_sessions(database: SessionDB) -> dict[str, str]:
    ended = [("cli", "cli_close", turns) for turns in (0, 0, 1, 2, 6, 15)]
    ended += [("cli", "new_session", 1), ("tui", "tui_close", 4), ("tui", "ws_orphan_reap", 0)]
    ended += [("cron", "cron_complete", 1), ("api_server", "reason of a client", 2)]
    for number, (source, reason, turns) in enumerate(ended):
        with ago((number + 1) * DAY):
            name = _start(database, f"202512{number + 1:02}_120000_bbbbbb", source, turns=turns)
            database.end_session(name, reason)
            if turns == 6:
                database.set_session_title(name, "A title")
    with ago(100 * DAY):
        archived = _start(database, "20250901_120000_bbbbbc", "cli", turns=4)
        database.end_session(archived, "cli_close")
        if hasattr(database, "set_session_archived"):
            database.set_session_archived(archived, True)
    with ago(2 * HOUR):
        written_after_end = _start(database, "20260103_120000_bbbbbd", "cli", turns=1)
        database.end_session(written_after_end, "cli_close")
    database.append_message(written_after_end, "user", "are you still there?")
    return {"archived": archived, "written_after_end": written_after_end}


def _families(database: SessionDB) -> dict[str, str]:
    """A compression lineage by rotation, a delegate child and a branch."""
    with ago(2 * DAY):
        ancestor = _start(database, "20260102_100000_cccccc", "cli", turns=12)
        database.end_session(ancestor, "compression")
        tip = _start(database, "20260102_110000_cccccd", "cli", turns=1, parent=ancestor)
        child = _start(
            database,
            "20260102_113000_ccccce",
            "subagent",
            turns=2,
            parent=tip,
            model_config={"_delegate_from": tip},
        )
        database.end_session(child, "agent_close")
        branch = _start(
            database,
            "20260102_120000_cccccf",
            "cli",
            turns=2,
            parent=tip,
            model_config={"_branched_from": tip},
        )
        database.end_session(branch, "branched")
    return {"ancestor": ancestor, "tip": tip, "child": child, "branch": branch}


def _rewritten(database: SessionDB) -> dict[str, str]:
    """Sessions whose rows are no longer all active, where this release can do that."""
    compacted = _start(database, "20260104_100000_dddddd", "cli", turns=9)
    if hasattr(database, "archive_and_compact"):
        tail = [{"role": "user", "content": "turn 9"}, {"role": "assistant", "content": "answer"}]
        summary = {"role": "user", "content": "what happened so far"}
        database.archive_and_compact(compacted, [summary, *tail])
    rewound = _start(database, "20260104_110000_ddddde", "cli", turns=5)
    if hasattr(database, "rewind_to_message"):
        asked = [row["id"] for row in database.get_messages(rewound) if row["role"] == "user"]
        database.rewind_to_message(rewound, asked[3])
    return {"compacted": compacted, "rewound": rewound}


def _held(database: SessionDB) -> dict[str, str]:
    """Open sessions that no process needs to run."""
    from hermes_cli.goals import GoalManager  # type: ignore[import-not-found]

    with ago(5 * DAY):
        handoff = _start(database, "20251230_100000_eeeeee", "cli", turns=2)
        delegating = _start(database, "20251230_110000_eeeeef", "cli", turns=2)
        compressing = _start(database, "20251230_120000_eeeee0", "cli", turns=2)
        with_goal = _start(database, "20251230_130000_eeeee1", "cli", turns=2)
        topic = _start(database, "20251230_140000_eeeeee11", "telegram", turns=2)
    database.request_handoff(handoff, "telegram")
    if hasattr(database, "try_acquire_compression_lock"):
        database.try_acquire_compression_lock(compressing, "pid=1:tid=1:agent=a:nonce=b", 3600.0)
    GoalManager(with_goal).set("finish the work")
    database.enable_telegram_topic_mode(chat_id="77", user_id="7")
    database.bind_telegram_topic(
        chat_id="77", thread_id="5", user_id="7", session_key="topic", session_id=topic
    )
    return {
        "handoff": handoff,
        "delegating": delegating,
        "compressing": compressing,
        "with_goal": with_goal,
        "topic": topic,
    }


def _delegate(parent: str) -> None:
    """An undelivered result of a background delegation, where they are kept in state.db."""
    try:
        from tools import async_delegation  # type: ignore[import-not-found]
    except ImportError:
        return
    if not hasattr(async_delegation, "get_durable_delegation"):
        return
    done = threading.Event()

    def finish() -> dict[str, Any]:
        done.set()
        return {"status": "completed", "summary": "found it"}

    async_delegation.dispatch_async_delegation(
        goal="look it up",
        context=None,
        toolsets=None,
        role="leaf",
        model=None,
        session_key="some-chat",
        parent_session_id=parent,
        runner=finish,
    )
    done.wait(30)
    deadline = time.monotonic() + 30
    while async_delegation.active_count() and time.monotonic() < deadline:
        time.sleep(0.01)


def _spend(database: SessionDB, ids: dict[str, str]) -> None:
    """Tokens and cost, by call as the CLI does and as totals as the gateway does."""
    for name, model, calls in [
        ("mid_turn", "large-1", 4),
        ("mid_turn", "small-1", 2),
        ("after_turn", "large-1", 1),
        ("child", "small-1", 3),
        ("archived", "large-1", 5),
    ]:
        for call in range(calls):
            database.update_token_counts(
                ids[name],
                input_tokens=1000 + call,
                output_tokens=100 + call,
                cache_read_tokens=5000,
                cache_write_tokens=300,
                reasoning_tokens=40,
                model=model,
                estimated_cost_usd=0.0125,
                actual_cost_usd=0.01 if name == "archived" else None,
                billing_provider="a-provider",
                api_call_count=1,
            )
    database.update_token_counts(
        ids["topic"],
        input_tokens=12345,
        output_tokens=678,
        model="large-1",
        estimated_cost_usd=0.5,
        api_call_count=7,
        absolute=True,
    )
    if hasattr(database, "record_auxiliary_usage"):
        database.record_auxiliary_usage(
            ids["after_turn"], "vision", model="eyes-1", input_tokens=900, output_tokens=9
        )


def _start(
    database: SessionDB,
    session_id: str,
    source: str,
    turns: int,
    parent: str | None = None,
    model_config: dict[str, str] | None = None,
) -> str:
    """A new session with `turns` questions, each of them answered."""
    database.create_session(
        session_id,
        source,
        model="large-1",
        model_config=model_config,
        system_prompt=SYSTEM_PROMPT,
        parent_session_id=parent,
    )
    for turn in range(turns):
        database.append_message(session_id, "user", f"turn {turn}: what is it?")
        if turn % 4 == 3:
            _tool_calls(database, session_id, "terminal", ['{"exit_code": 0}'], answered=True)
        database.append_message(session_id, "assistant", "this", finish_reason="stop")
    return session_id


def _tool_calls(
    database: SessionDB, session_id: str, tool: str, results: list[str], *, answered: bool
) -> None:
    """One call of `tool` for each result; without answers they are still under way."""
    for number, result in enumerate(results):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": tool}}
        database.append_message(session_id, "assistant", None, tool_calls=[call])
        if answered:
            database.append_message(
                session_id, "tool", result, tool_name=tool, tool_call_id=f"call_{number}"
            )
