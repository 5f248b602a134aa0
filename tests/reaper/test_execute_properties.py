"""Whatever has become of the sessions of a plan: only what still is as it was judged is ended."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import apsw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.demo import schema
from exporter.reaper.plan import OpenSessionState
from exporter.reaper.reap import execute
from exporter.reaper.reopen import undo
from exporter.runs.models import END_SESSION, Action, Plan
from tests.support.reaping import REASON, target_of

BEGAN = 1_700_000_000.0
NAMES = tuple("abcdefgh")

rows = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["cli", "cron"]),
        "ended": st.sampled_from([None, "cli_close"]),
        "handoff": st.sampled_from([None, "pending", "completed"]),
        "messages": st.lists(st.integers(0, 1000), max_size=4),
        "locked": st.booleans(),
        "routed": st.booleans(),
    }
)
homes = st.dictionaries(st.sampled_from(NAMES), rows, min_size=1)
changes = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["rows", "clock", "source"]))


def write_home(home: Path, sessions: dict[str, dict[str, Any]]) -> None:
    connection = apsw.Connection(str(home / "state.db"))
    connection.pragma("journal_mode", "WAL")
    connection.execute(schema.STATE_TABLES)
    for name, row in sessions.items():
        connection.execute(
            "INSERT INTO sessions (id, source, started_at, ended_at, end_reason, handoff_state) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (name, row["source"], BEGAN, row["ended"] and BEGAN, row["ended"], row["handoff"]),
        )
        for seconds in row["messages"]:
            connection.execute(
                "INSERT INTO messages (session_id, role, timestamp) VALUES (?, 'user', ?)",
                (name, BEGAN + seconds),
            )
        if row["locked"]:
            connection.execute(
                "INSERT INTO compression_locks VALUES (?, 'pid=1', 0, 1e11)", (name,)
            )
        if row["routed"]:
            entry = f'{{"session_id": "{name}"}}'
            connection.execute("INSERT INTO gateway_routing VALUES ('', ?, ?, 0)", (name, entry))
    connection.close()


def expected(row: dict[str, Any], change: str | None) -> OpenSessionState:
    """What a verdict would have been made from, had the session not changed since."""
    return OpenSessionState(
        source="tui" if change == "source" else row["source"],
        started_at=BEGAN,
        last_activity_at=BEGAN + max(row["messages"], default=0) + (change == "clock"),
        last_heartbeat_at=None,
        rows=len(row["messages"]) + (change == "rows"),
        messages=len(row["messages"]),
    )


def stored(home: Path) -> dict[str, tuple[Any, ...]]:
    connection = apsw.Connection(str(home / "state.db"))
    found: list[Any] = connection.execute("SELECT * FROM sessions").fetchall()
    names = [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]
    connection.close()
    first, last = names.index("ended_at"), names.index("end_reason") + 1
    return {row[0]: (row[:first] + row[last:], row[first:last]) for row in found}


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(homes, st.sets(st.sampled_from(NAMES)), changes)
def test_no_more_than_the_plan_and_of_it_only_what_is_as_judged(
    sessions: dict[str, dict[str, Any]], planned: set[str], changed: dict[str, str]
) -> None:
    nothing = {"source": "cli", "messages": []}
    actions = tuple(
        Action(END_SESSION, name, "why", expected(sessions.get(name, nothing), changed.get(name)))
        for name in sorted(planned)
    )
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_home(home, sessions)
        before = stored(home)
        outcome = execute(Plan("home", actions=actions), target_of(home), end_reason=REASON)
        after = stored(home)
        right = {
            name
            for name, row in sessions.items()
            if name in planned
            and name not in changed
            and row["ended"] is None
            and row["handoff"] != "pending"
            and not (row["locked"] or row["routed"])
        }
        assert set(outcome.done) == right
        assert {each.target for each in outcome.skipped} == planned - right
        for name, (rest, end) in after.items():
            assert rest == before[name][0]
            last = BEGAN + max(sessions[name]["messages"], default=0)
            assert end == ((last, REASON) if name in right else before[name][1])
        if outcome.run is not None:
            assert set(undo(outcome.run, target_of(home)).done) == right
        assert stored(home) == before
