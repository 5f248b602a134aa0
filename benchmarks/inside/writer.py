"""A Hermes process that keeps state.db open and appends messages on request.

Each line of input is a JSON object, each answer a line of output. When its input ends, it closes
the database as Hermes does.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from hermes_state import SessionDB  # type: ignore[import-not-found]

_TEXT = "an invented message of ordinary length, with a few words to index "
_LONGEST = 60
"""Longer sessions get no more messages: homes are kept from run to run, and a poll counts the
messages of each session that has changed.
"""


def main() -> None:
    database = SessionDB()
    _answer("ready")
    for line in sys.stdin:
        _answer(_append(database, **json.loads(line)))
    database.close()


def _append(
    database: Any, *, messages: int, sessions: int, pause_seconds: float, optimize: bool
) -> list[float]:
    """Append this many messages, in turn to this many sessions; return the seconds of each.

    As shipped, SessionDB merges its whole text index every 1,000 writes, for seconds. Without
    `optimize` that is postponed, or one merge would hide every other figure.
    """
    if not optimize:
        database._OPTIMIZE_EVERY_N_WRITES = sys.maxsize  # noqa: SLF001 - it has no setting
    rows = database._conn.execute(  # noqa: SLF001 - a second connection would be a second writer
        "SELECT id FROM sessions WHERE message_count BETWEEN 6 AND ? ORDER BY rowid DESC LIMIT ?",
        (_LONGEST, sessions),
    )
    ids = [row[0] for row in rows]
    if not ids:
        sys.exit(f"no session with 6 to {_LONGEST} messages is left: remove this home's state.db")
    latencies = []
    for number in range(messages):
        began = time.perf_counter()
        database.append_message(ids[number % len(ids)], "user", f"{_TEXT * 6}{number}")
        latencies.append(time.perf_counter() - began)
        time.sleep(pause_seconds)
    return latencies


def _answer(value: object) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
