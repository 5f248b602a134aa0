"""What a user is shown of a session, by the functions that Hermes's own commands call.

`listed` is `hermes sessions list`, `last` is `-c`, `resumed` is `--resume SESSION`, `loaded` what
that puts on the screen, `found` is the search for the words.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hermes_cli import main as command_line  # type: ignore[import-not-found]
from hermes_state import SessionDB  # type: ignore[import-not-found]


def main() -> None:
    request = json.load(sys.stdin)
    database = SessionDB()
    listed = database.list_sessions_rich(exclude_sources=["tool"], limit=1000)
    resumed = command_line._resolve_session_by_name_or_id(request["session"])
    resumed = database.resolve_resume_session_id(resumed)
    loaded = database.get_messages_as_conversation(resumed)
    found = database.search_messages(f'"{request["words"]}"', limit=1000)
    answer: dict[str, Any] = {
        "listed": [each["id"] for each in listed],
        "last": command_line._resolve_last_session(request["source"]),
        "resumed": resumed,
        "loaded": [str(message.get("content")) for message in loaded],
        "found": sorted({each["session_id"] for each in found}),
    }
    database.close()
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
