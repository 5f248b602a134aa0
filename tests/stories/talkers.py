"""The kinds of process that can be on a session, made to do the same things."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from tests.real.acp import Editor, editor
from tests.real.api_server import ApiServer, api_server
from tests.real.cli import Chat, ask, chat, numbered
from tests.real.hermes import Hermes
from tests.real.holders import Holder, holder
from tests.real.plugin import PluginThread, plugin_in_gateway
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
        """Whether the result has been answered, which comes as a question of its own.

        Up to 0.17 it is the result of the tool, and the subagent does not run beside the chat.
        """
        session = last_session_of(self._home, self._last)
        sql = f"SELECT role, content FROM messages WHERE session_id = '{session}' ORDER BY id"
        *_, told, answer = ask(self._home, sql)
        said = str(told["content"])
        if answer["role"] != "assistant":
            return False
        if told["role"] == "tool":
            return '"mode": "background"' not in said
        return told["role"] == "user" and self._last not in said

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

    def __init__(self, program: Holder | PluginThread, home: Path) -> None:
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


class ApiTalker:
    """A client of the API server in a gateway, which keeps nothing between turns."""

    source = "api_server"

    def __init__(self, server: ApiServer, home: Path) -> None:
        self._server, self._home = server, home
        self._session = ""
        self._turn: threading.Thread | None = None

    def begin(self) -> None:
        self._session = numbered("api").replace(" ", "_")

    def ask(self, words: str) -> str:
        line = numbered(words)
        self._turn = threading.Thread(target=self._complete, args=(line,), daemon=True)
        self._turn.start()
        return line

    def _complete(self, line: str) -> None:
        self._session = self._server.complete(self._session, line)

    def wait(self) -> None:
        assert self._turn is not None
        self._turn.join(PATIENCE_SECONDS)
        assert not self._turn.is_alive()

    def wait_for_helpers(self) -> None:
        _wait_for_subagents(self._home)

    def compress(self) -> None:
        raise NotImplementedError("a client has no such command")

    def branch(self) -> None:
        self._session = self._server.fork(self._session)


class AcpTalker:
    source = "acp"

    def __init__(self, window: Editor, home: Path) -> None:
        self._editor, self._home = window, home
        self._session = ""
        self._turn = 0

    def begin(self) -> None:
        self._session = self._editor.create()

    def ask(self, words: str) -> str:
        line = numbered(words)
        self._turn = self._editor.ask(self._session, line)
        return line

    def wait(self) -> None:
        self._editor.wait(self._turn)

    def wait_for_helpers(self) -> None:
        _wait_for_subagents(self._home)

    def compress(self) -> None:
        self._editor.wait(self._editor.ask(self._session, "/compact"))

    def branch(self) -> None:
        self._session = self._editor.fork(self._session)


KINDS = ("chat", "tui", "embedder", "plugin", "api", "acp")


@contextmanager
def talker(kind: str, hermes: Hermes, home: Path) -> Iterator[Talker]:
    with ExitStack() as stack:
        if kind == "chat":
            yield ChatTalker(stack.enter_context(chat(hermes, home)), home)
        elif kind == "tui":
            yield TuiTalker(stack.enter_context(tui(hermes, home)), home)
        elif kind == "api":
            yield ApiTalker(stack.enter_context(api_server(hermes, home)), home)
        elif kind == "acp":
            yield AcpTalker(stack.enter_context(editor(hermes, home)), home)
        elif kind == "plugin":
            yield EmbeddingTalker(stack.enter_context(plugin_in_gateway(hermes, home)), home)
        else:
            yield EmbeddingTalker(stack.enter_context(holder(hermes, home, module="embed")), home)


def _wait_for_subagents(home: Path) -> None:
    """From 0.18.2 on they run beside their parent, which goes on when they have ended.

    0.17 has such rows too, and never ends them.
    """
    if not ask(home, _ENDS_SUBAGENTS):
        return
    wait_until(lambda: not ask(home, _OPEN_SUBAGENTS), "the subagents have ended", PATIENCE_SECONDS)


_ENDS_SUBAGENTS = "SELECT 1 FROM pragma_table_info('messages') WHERE name = 'compacted'"
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
