"""A process that has sessions in memory, and goes on with them after their rows were deleted.

See `hold_prunable`; what is written comes from the release itself.
"""

from __future__ import annotations

from typing import Any

from tests.real.inside import hold, hold_prunable


class Holder(hold_prunable.Holder):
    """The commands of `hold_prunable.Holder` and these."""

    def __init__(self) -> None:
        super().__init__()
        self._memory: dict[str, list[dict[str, Any]]] = {}

    def remember(self, session: str, joined: bool = False) -> int:
        """Have a session in memory, as a chat does that was resumed; `joined` if it is repaired."""
        more = {"repair_alternation": True} if joined else {}
        self._memory[session] = self._database.get_messages_as_conversation(session, **more)
        return len(self._memory[session])

    def go_on(self, session: str, text: str) -> None:
        """One turn. The first that Hermes writes of it is what it has used: that makes the row."""
        self._use(session)
        for role, said in (("user", text), ("assistant", f"answer to {text}")):
            self._database.append_message(session, role, said)
            self._memory.setdefault(session, []).append({"role": role, "content": said})

    def _use(self, session: str) -> None:
        self._database.update_token_counts(
            session, input_tokens=5, output_tokens=7, model="large-1", api_call_count=1
        )

    def compact_in_place(self, session: str, keep: int) -> None:
        """What `/compress` does from 0.18 on; the old rows stay, as compacted ones."""
        self._database.archive_and_compact(session, self._compressed(session, keep))

    def compact_by_rewriting(self, session: str, keep: int) -> None:
        """What the gateway's `/compress` does up to 0.17: it drops the old rows."""
        self._use(session)
        self._database.replace_messages(session, self._compressed(session, keep))

    def _compressed(self, session: str, keep: int) -> list[dict[str, Any]]:
        """The first two messages, a summary with the release's own words, and the newest."""
        from agent.context_compressor import SUMMARY_PREFIX  # type: ignore[import-not-found]

        said = self._memory[session]
        summary = {"role": "user", "content": f"{SUMMARY_PREFIX}\nthey spoke of many things"}
        self._memory[session] = [*said[:2], summary, *said[len(said) - keep :]]
        return self._memory[session]

    def persist_as_acp(self, session: str, text: str) -> None:
        """One turn in an editor: the session manager of the release saves its whole history."""
        from acp_adapter.session import (  # type: ignore[import-not-found]
            SessionManager,
            SessionState,
        )

        history = [*self._memory[session], {"role": "user", "content": text}]
        manager = SessionManager(agent_factory=lambda **_: None, db=self._database)
        manager._persist(SessionState(session_id=session, agent=None, cwd="/", history=history))
        self._memory[session] = history

    def import_again(self, exported: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._database.import_sessions([exported])
        return answer

    def conversation(self, session: str) -> list[list[Any]]:
        """What Hermes loads into its context when it takes the session up."""
        found = self._database.get_messages_as_conversation(session)
        return [[message["role"], message.get("content")] for message in found]

    def rows(self, session: str) -> list[dict[str, Any]]:
        """All messages of a session, in the order in which Hermes reads them."""
        found = self._database._conn.execute(
            "SELECT * FROM messages WHERE session_id = ? ORDER BY id", (session,)
        ).fetchall()
        return [dict(row) for row in found]

    def used(self, session: str) -> dict[str, int]:
        """Input tokens by model, where this release counts them so."""
        tables = "SELECT 1 FROM sqlite_master WHERE name = 'session_model_usage'"
        if not self._database._conn.execute(tables).fetchone():
            return {}
        found = self._database._conn.execute(
            "SELECT model, SUM(input_tokens) FROM session_model_usage "
            "WHERE session_id = ? GROUP BY 1",
            (session,),
        ).fetchall()
        return {row[0]: row[1] for row in found}

    def lists(self) -> dict[str, Any]:
        """What this release shows of its sessions, in every way in which it lists them."""
        listed = self._database.list_sessions_rich
        shown = [row["id"] for row in listed(limit=100)]
        if not self.can_archive():
            return {"shown": shown, "archived": [], "total": self._database.session_count()}
        return {
            "shown": shown,
            "archived": [row["id"] for row in listed(limit=100, archived_only=True)],
            "total": self._database.session_count(),
            "empty": self._database.count_empty_sessions(),
        }

    def can_archive(self) -> bool:
        return hasattr(self._database, "set_session_archived")

    def archive(self, session: str, archived: bool) -> None:
        """What a person does in the dashboard, or by `hermes sessions archive`."""
        self._database.set_session_archived(session, archived)

    def reopen(self, session: str) -> None:
        self._database.reopen_session(session)

    def bear(self, session: str, parent: str) -> None:
        self._database.create_session(session, "cli", parent_session_id=parent)


def main() -> None:
    hold.Holder = Holder  # type: ignore[misc]
    hold.main()


if __name__ == "__main__":
    main()
