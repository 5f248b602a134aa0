"""Makes one small home with something of everything that this release writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hermes_state import SessionDB  # type: ignore[import-not-found]

from tests.real.inside import make_chats, make_checkpoints, make_files, make_sessions


def main() -> None:
    request = json.load(sys.stdin)
    home = Path(request["home"])
    home.mkdir(mode=0o700, exist_ok=True)
    database = SessionDB()
    sessions = make_sessions.make_sessions(database)
    database.close()
    sessions |= make_chats.make_chats(home)
    lease = make_files.make_lease(sessions["after_turn"])
    make_files.make_dead_gateway()
    facts = {
        "sessions": sessions,
        "transcripts": make_files.make_transcripts(
            home, [sessions["mid_turn"], sessions["archived"]]
        ),
        "checkpoints": make_checkpoints.make_checkpoints(home, Path(request["projects"])),
        "cron": make_files.make_cron(),
        "kanban": make_files.make_kanban(request["live_pid"]),
        "lease": lease,
    }
    make_files.make_leftovers(home)
    json.dump(facts, sys.stdout)


if __name__ == "__main__":
    main()
