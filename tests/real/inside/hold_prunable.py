"""A holder that makes old sessions, and uses what is left of them: see `hold`."""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

from tests.real.inside import hold, hold_more
from tests.real.inside.clock import DAY, ago


class Holder(hold_more.Holder):
    """The commands of `hold_more.Holder` and these."""

    def old(
        self,
        session: str,
        count: int,
        days: float = 200.0,
        source: str = "cli",
        title: str = "",
        parent: str = "",
        marker: str = "",
        end_reason: str = "cli_close",
        words: str = "",
    ) -> None:
        """A session that ended so long ago; its model_config has `marker` for its parent."""
        with ago(days * DAY):
            self._database.create_session(
                session,
                source,
                system_prompt="Be careful. " * 2000,
                model_config={marker: parent} if marker else None,
                parent_session_id=parent or None,
            )
            for number in range(count):
                self._say(session, number, words)
            self._database.update_token_counts(
                session, input_tokens=10, output_tokens=count, model="large-1", api_call_count=1
            )
            if title:
                self._database.set_session_title(session, title)
            self._database.end_session(session, end_reason)

    def _say(self, session: str, number: int, words: str) -> None:
        if number % 5 == 4:
            call = {"id": f"c{number}", "type": "function", "function": {"name": "terminal"}}
            self._database.append_message(session, "assistant", None, tool_calls=[call])
        elif number % 7 == 3:
            picture = [{"type": "text", "text": f"picture {number} of {session}"}]
            self._database.append_message(session, "user", picture)
        else:
            text = f"word{number} in {session} {words}"
            self._database.append_message(session, "user", text)

    def leave_traces(self, session: str) -> None:
        """What Hermes forgets when it deletes a session: a finished goal, an expired lock."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO state_meta VALUES (?, ?)",
                (f"goal:{session}", json.dumps({"status": "done"})),
            )
            tables = "SELECT 1 FROM sqlite_master WHERE name = 'compression_locks'"
            if connection.execute(tables).fetchone():
                connection.execute(
                    "INSERT OR REPLACE INTO compression_locks VALUES (?, 'pid=1', 1.0, 2.0)",
                    (session,),
                )

        self._database._execute_write(write)

    def exported(self, session: str) -> Any:
        return self._database.export_session(session)

    def search(self, text: str) -> list[str]:
        """The sessions in which Hermes's own search finds this."""
        found = self._database.search_messages(text, limit=1000)
        return sorted({row["session_id"] for row in found})

    def own_prune(self, days: int) -> int:
        """What `hermes sessions prune` does."""
        return int(self._database.prune_sessions(older_than_days=days))

    def broken(self) -> list[Any]:
        """Whatever SQLite, as this release brings it, finds wrong."""
        connection = self._database._conn
        wrong = [row[0] for row in connection.execute("PRAGMA quick_check") if row[0] != "ok"]
        wrong += [list(row) for row in connection.execute("PRAGMA foreign_key_check")]
        for table in ("messages_fts", "messages_fts_trigram"):
            connection.execute(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")
            wrong += [
                f"{table} has {row[0]}"
                for row in connection.execute(
                    f"SELECT rowid FROM {table} EXCEPT SELECT id FROM messages"
                )
            ]
            wrong += [
                f"{table} lacks {row[0]}"
                for row in connection.execute(
                    f"SELECT id FROM messages EXCEPT SELECT rowid FROM {table}"
                )
            ]
        connection.commit()
        return wrong

    def set_title(self, session: str, title: str) -> None:
        self._database.set_session_title(session, title)

    def _write(self, session: str) -> None:
        """As before, and with a breath now and then, as a conversation has."""
        while not self._stop.is_set():
            try:
                self._database.append_message(session, "user", f"message {self._written}")
            except Exception as error:  # noqa: BLE001 - reported to the test that asked for it
                self._failure = f"{type(error).__name__}: {error}"
                return
            self._written += 1
            time.sleep(0.002)


def main() -> None:
    hold.Holder = Holder  # type: ignore[misc]
    hold.main()


if __name__ == "__main__":
    main()
