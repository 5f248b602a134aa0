"""A program that embeds Hermes: it runs agents of its own on any session, and does as it is told.

It speaks JSON lines like `hold.py`. The same can run as a thread of another Hermes process: see
`plugin.py`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import IO, Any

from hermes_state import SessionDB  # type: ignore[import-not-found]
from run_agent import AIAgent  # type: ignore[import-not-found]


class Embedder:
    """What can be asked of it: every public method is a command."""

    def __init__(self) -> None:
        self._database = SessionDB()
        self._history: list[dict[str, Any]] = []
        self._agent: Any = None
        self._turn: threading.Thread | None = None

    def take_up(self, session: str) -> int:
        """Go on with a session as it is in the database; return how many messages it has."""
        self._history = self._database.get_messages_as_conversation(session)
        self._agent = self._make_agent(session)
        return len(self._history)

    def say(self, words: str) -> str:
        """One turn; return the session that the agent is on afterwards."""
        self.begin(words)
        return self.finish()

    def begin(self, words: str) -> None:
        """Begin a turn and do not wait for it."""
        self._turn = threading.Thread(target=self._run_turn, args=(words,), daemon=True)
        self._turn.start()

    def finish(self) -> str:
        """Wait for the turn under way; return the session that the agent is on."""
        assert self._turn is not None
        self._turn.join()
        return str(self._agent.session_id)

    def compress(self) -> str:
        """What `/compress` does; return the session that the agent is on afterwards."""
        self._history, _ = self._agent._compress_context(list(self._history), None)
        self._agent._flush_messages_to_session_db(self._history, None)
        return str(self._agent.session_id)

    def remembered(self) -> int:
        """How many messages it has in memory."""
        return len(self._history)

    def close(self) -> None:
        """Let the agent go, as a program does that is done with a session."""
        self._agent.close()

    def _run_turn(self, words: str) -> None:
        result = self._agent.run_conversation(words, conversation_history=self._history)
        self._history = result["messages"]

    def _make_agent(self, session: str) -> Any:
        # JSON is YAML too, and this is all that the stub model wrote.
        model = json.loads(Path(os.environ["HERMES_HOME"], "config.yaml").read_text())["model"]
        return AIAgent(
            base_url=model["base_url"],
            api_key=model["api_key"],
            provider=model["provider"],
            model=model["default"],
            quiet_mode=True,
            session_id=session,
            session_db=self._database,
        )


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Say the PID, then obey until there is nothing more to read."""
    embedder = Embedder()
    _answer(answers, os.getpid())
    for line in requests:
        request = json.loads(line)
        command = request.pop("do")
        if command.startswith("_"):
            raise SystemExit(f"no such command: {command}")
        _answer(answers, getattr(embedder, command)(**request))


def _answer(answers: IO[str], value: Any) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def main() -> None:
    # An agent prints what it does even when it is told to be quiet.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
