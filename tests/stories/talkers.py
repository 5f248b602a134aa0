"""The kinds of process that can be on a session, made to do the same things."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from tests.real.cli import Chat, ask, chat, numbered
from tests.real.hermes import Hermes
from tests.real.holders import Holder, holder
from tests.real.terminal import PATIENCE_SECONDS
from tests.real.tui import Tui, tui
from tests.real.waiting import wait_until

TURNS = 4
"""So many that there is something to summarize: the first three messages and the last are kept."""
SHORT = 2
"""So few that `/compress` finds nothing to summarize."""


class Talker(Protocol):
    """A process that is in a conversation."""

    source: str

    def begin(self) -> None:
        """Begin a new conversation; the one before is left as a user leaves it."""

    def ask(self, words: str) -> str:
        """Ask, and do not wait for the answer; return what was asked."""

    def wait(self) -> None:
        """Return when the answer is there."""

    def wait_for_helpers(self) -> None:
        """Return when the subagents of the last question have ended and told their result."""

    def compress(self) -> None: ...

    def branch(self) -> None: ...


class ChatTalker:
    source = "cli"

    def __init__(self, window: Chat, home: Path) -> None:
        self._window, self._home = window, home
        self._last = ""

    def begin(self) -> None:
        if self._last:
            self._window.session = last_session_of(self._home, self._last)
            self._window.new()

    def ask(self, words: str) -> str:
        self._last = self._window.ask(words)
        return self._last

    def wait(self) -> None:
        self._window.wait_for_prompt()

    def wait_for_helpers(self) -> None:
        _wait_for_subagents(self._home)
        if ask(self._home, "SELECT 1 FROM sessions WHERE source = 'subagent' LIMIT 1"):
            wait_until(self._is_told, "the chat is told the result", PATIENCE_SECONDS)
            self._window.wait_for_prompt()

    def _is_told(self) -> bool:
        """Whether the result that came as a question of its own has been answered."""
        session = last_session_of(self._home, self._last)
        sql = f"SELECT role, content FROM messages WHERE session_id = '{session}' ORDER BY id"
        told = [row["role"] for row in ask(self._home, sql)][-2:] == ["user", "assistant"]
        return told and self._last not in str(ask(self._home, sql)[-2]["content"])

    def compress(self) -> None:
        self._window.compress()

    def branch(self) -> None:
        self._window.branch()


class TuiTalker:
    source = "tui"

    def __init__(self, backend: Tui, home: Path) -> None:
        self._backend, self._home = backend, home
        self._window = ""

    def begin(self) -> None:
        if self._window:
            self._backend.close(self._window)
        self._window = self._backend.create()

    def ask(self, words: str) -> str:
        return self._backend.ask(self._window, words)

    def wait(self) -> None:
        self._backend.wait_for_answer(self._window)

    def wait_for_helpers(self) -> None:
        _wait_for_subagents(self._home)

    def compress(self) -> None:
        self._backend.compress(self._window)

    def branch(self) -> None:
        self._window = self._backend.branch(self._window)


class EmbeddingTalker:
    source = "cli"

    def __init__(self, program: Holder, home: Path) -> None:
        self._program, self._home = program, home

    def begin(self) -> None:
        self._program.ask("take_up", session=numbered("embedded").replace(" ", "_"))

    def ask(self, words: str) -> str:
        line = numbered(words)
        self._program.ask("begin", words=line)
        return line

    def wait(self) -> None:
        self._program.ask("finish")

    def wait_for_helpers(self) -> None:
        _wait_for_subagents(self._home)

    def compress(self) -> None:
        self._program.ask("compress")

    def branch(self) -> None:
        raise NotImplementedError("a program has no such command")


KINDS = ("chat", "tui", "embedder")


@contextmanager
def talker(kind: str, hermes: Hermes, home: Path) -> Iterator[Talker]:
    with ExitStack() as stack:
        if kind == "chat":
            yield ChatTalker(stack.enter_context(chat(hermes, home)), home)
        elif kind == "tui":
            yield TuiTalker(stack.enter_context(tui(hermes, home)), home)
        else:
            yield EmbeddingTalker(stack.enter_context(holder(hermes, home, module="embed")), home)


def _wait_for_subagents(home: Path) -> None:
    """From 0.18.2 on they run beside their parent, which goes on when they have ended."""
    wait_until(lambda: not ask(home, _OPEN_SUBAGENTS), "the subagents have ended", PATIENCE_SECONDS)


_OPEN_SUBAGENTS = "SELECT 1 FROM sessions WHERE source = 'subagent' AND ended_at IS NULL"


def last_session_of(home: Path, line: str) -> str:
    """The session that a question was stored in last: a rotation copies it to the next one."""
    sql = f"SELECT session_id FROM messages WHERE content LIKE '%{line}' ORDER BY id DESC LIMIT 1"
    (row,) = ask(home, sql)
    return str(row["session_id"])


def say(talker: Talker, words: str = "hello") -> str:
    """One whole turn; return what was asked."""
    line = talker.ask(words)
    talker.wait()
    return line


def converse(talker: Talker, home: Path, turns: int = TURNS) -> str:
    """A new conversation of so many turns; return its session."""
    talker.begin()
    lines = [say(talker) for _ in range(turns)]
    return last_session_of(home, lines[0])
