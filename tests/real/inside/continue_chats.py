"""The next message in each chat of `make_chats`, through a SessionStore that was started anew."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gateway.config import GatewayConfig, Platform  # type: ignore[import-not-found]
from gateway.session import SessionSource, SessionStore  # type: ignore[import-not-found]

from tests.real.inside.make_chats import CHATS, make_chats


def main() -> None:
    request = json.load(sys.stdin)
    home = Path(request["home"])
    answer = make_chats(home) if request["make"] else continue_chats(home)
    json.dump(answer, sys.stdout)


def continue_chats(home: Path) -> dict[str, list[str | int]]:
    """The session that each chat leads to, and how much of the conversation it remembers."""
    store = SessionStore(home / "sessions", GatewayConfig())
    found: dict[str, list[str | int]] = {}
    for name, chat, kind in CHATS:
        source = SessionSource(
            platform=Platform.TELEGRAM,
            chat_id=chat,
            chat_type=kind,
            user_id="42",
            user_name="someone",
        )
        entry = store.get_or_create_session(source)
        remembered = len(store.load_transcript(entry.session_id))
        message = {"role": "user", "content": "and then?"}
        store.append_to_transcript(entry.session_id, message)
        found[f"chat_{name}"] = [entry.session_id, remembered]
    store._db.close()
    return found


if __name__ == "__main__":
    main()
