"""A holder that can also do what brings an idle session back: see `hold`."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from tests.real.inside import hold
from tests.real.inside.clock import ago


class Holder(hold.Holder):
    """The commands of `hold.Holder` and these."""

    def leak(self, session: str, source: str = "cli", idle: float = 7200.0, count: int = 3) -> None:
        """A session whose process was killed so long ago."""
        with ago(idle):
            self._database.create_session(session, source, system_prompt="Be careful. " * 2000)
            for number in range(count):
                role = "assistant" if number % 2 else "user"
                self._database.append_message(session, role, f"message {number}")

    def resume(self, session: str) -> int:
        """What the CLI does for --resume and /resume; how many messages it finds."""
        found = self._database.get_messages_as_conversation(session)
        self._database.reopen_session(session)
        return len(found)

    def show(self, session: str) -> Any:
        """The row as Hermes reads it."""
        return self._database.get_session(session)

    def listed(self) -> list[str]:
        """The sessions that `hermes sessions list` shows."""
        return [row["id"] for row in self._database.list_sessions_rich(limit=1000)]

    def forget(self, session: str) -> None:
        self._database.delete_session(session)

    def hand_off(self, session: str) -> None:
        self._database.request_handoff(session, "telegram")

    def compress(self, session: str) -> bool:
        """Begin to compress it, where this release locks a session for that."""
        if not hasattr(self._database, "try_acquire_compression_lock"):
            return False
        return bool(self._database.try_acquire_compression_lock(session, "pid=1", 3600.0))

    def route_by_table(self, session: str) -> bool:
        """Make a chat lead to it, where this release has a table for that."""
        tables = "SELECT 1 FROM sqlite_master WHERE name = 'gateway_routing'"
        if not self._database._conn.execute(tables).fetchone():
            return False
        entry = json.dumps({"session_id": session})
        self._database._execute_write(
            lambda connection: connection.execute(
                "INSERT INTO gateway_routing VALUES ('', 'a chat', ?, ?)", (entry, time.time())
            )
        )
        return True

    def route_by_file(self, session: str) -> None:
        """Make a chat lead to it, in the file that every release writes."""
        folder = os.path.join(os.environ["HERMES_HOME"], "sessions")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "sessions.json"), "w") as file:
            json.dump({"a chat": {"session_id": session}}, file)


def main() -> None:
    hold.Holder = Holder  # type: ignore[misc]
    hold.main()


if __name__ == "__main__":
    main()
