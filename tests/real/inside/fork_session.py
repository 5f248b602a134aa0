"""What the API server writes when a client forks an empty session and goes on with both."""

from __future__ import annotations

import json
import sys


def main() -> None:
    """The calls of its handlers, in their order; between the turns a person changed the limit."""
    from hermes_state import SessionDB  # type: ignore[import-not-found]

    database = SessionDB()
    database.create_session("first", "api_server")
    database.end_session("first", "branched")
    database.create_session("fork", "api_server", parent_session_id="first")
    database.set_session_title("fork", "fork")
    for session, limit in (("fork", 90), ("first", 60)):
        config = {"max_iterations": limit, "reasoning_config": None, "max_tokens": None}
        database.create_session(session, "api_server", model_config=config)  # as a turn does
        database.append_message(session, "user", f"said to {session}")
    database.reopen_session("first")  # by `hermes --resume first`
    database.close()
    json.dump(None, sys.stdout)


if __name__ == "__main__":
    main()
