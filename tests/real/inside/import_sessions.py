"""Fills a home with as many sessions as the field has, by SessionDB's own import.

Each line of input is a list of sessions as `hermes sessions export` writes them, oldest first. What
each used of its model is counted as the agent counts it, and each chat leads to its newest session.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from hermes_state import SessionDB  # type: ignore[import-not-found]

from tests.real.inside.clock import ago


def main() -> None:
    database = SessionDB()
    # A home in the making need not survive a power cut, nor be tidied up every 1,000 writes.
    database._conn.execute("PRAGMA synchronous=OFF")
    database._OPTIMIZE_EVERY_N_WRITES = sys.maxsize
    for line in sys.stdin:
        sessions = json.loads(line)
        answer = database.import_sessions(sessions)
        if answer["imported"] != len(sessions) or answer["detached"]:
            raise SystemExit(f"not all were imported: {answer['errors'][:3]}")
        for session in sessions:
            with ago(time.time() - session["last_at"]):
                _spend(database, session)
                _route(database, session)
    database.close()


def _spend(database: SessionDB, session: dict[str, Any]) -> None:
    if session["used"]:
        database.update_token_counts(session["id"], **session["used"])


def _route(database: SessionDB, session: dict[str, Any]) -> None:
    if session["session_key"] is None:
        return
    database.record_gateway_session_peer(
        session["id"],
        source=session["source"],
        user_id=session["user_id"],
        session_key=session["session_key"],
        chat_id=session["user_id"],
        chat_type="dm",
    )
    entry = {"session_id": session["id"], "session_key": session["session_key"]}
    database.save_gateway_routing_entry(session["session_key"], json.dumps(entry))


if __name__ == "__main__":
    main()
