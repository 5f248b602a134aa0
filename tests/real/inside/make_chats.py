"""Gateway chats through SessionStore, as an inbound message makes them."""

from __future__ import annotations

from pathlib import Path

from gateway.config import GatewayConfig, Platform  # type: ignore[import-not-found]
from gateway.session import SessionSource, SessionStore  # type: ignore[import-not-found]

CHATS = (("direct", "1001", "dm"), ("group", "-2002", "group"), ("channel", "-3003", "channel"))


def make_chats(home: Path) -> dict[str, str]:
    """Three routed chats; one of them was reset, so that its first session is ended."""
    store = SessionStore(home / "sessions", GatewayConfig())
    ids: dict[str, str] = {}
    for name, chat, kind in CHATS:
        source = SessionSource(
            platform=Platform.TELEGRAM,
            chat_id=chat,
            chat_type=kind,
            user_id="42",
            user_name="someone",
        )
        entry = store.get_or_create_session(source)
        for turn in range(3):
            for role in ("user", "assistant"):
                message = {"role": role, "content": f"turn {turn}"}
                store.append_to_transcript(entry.session_id, message)
        ids[f"chat_{name}"] = entry.session_id
        if name == "channel":
            ids["chat_reset"] = entry.session_id
            ids["chat_channel"] = store.reset_session(entry.session_key).session_id
    store._db.close()
    return ids
