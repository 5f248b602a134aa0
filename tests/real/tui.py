"""The backend of the TUI: `python -m tui_gateway.entry`, JSON-RPC over its standard streams."""

from __future__ import annotations

import queue
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.cli import numbered, session_of, user_environment
from tests.real.hermes import Hermes
from tests.real.json_rpc import JsonRpc, result_of
from tests.real.stub_model import HANG, StubModel
from tests.real.terminal import PATIENCE_SECONDS
from tests.real.waiting import wait_until

_BUSY = 4009


class Tui:
    """A running backend. A window in it has a short name of its own beside its session's id."""

    def __init__(self, home: Path, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._home = home
        self._events: queue.Queue[tuple[str, str]] = queue.Queue()
        self._calls = JsonRpc(process, self._hear)

    def create(self) -> str:
        """A new window; its session has no row before the first question."""
        return str(self.request("session.create", cols=80)["session_id"])

    def resume(self, session: str) -> str:
        return str(self.request("session.resume", session_id=session, cols=80)["session_id"])

    def say(self, window: str, words: str = "hello") -> str:
        """Ask something; return the session when the answer is there."""
        line = self.ask(window, words)
        self.wait_for_answer(window)
        return session_of(self._home, line)

    def ask(self, window: str, words: str) -> str:
        """Ask something and do not wait; return what was asked."""
        line = numbered(words)
        self.request("prompt.submit", session_id=window, text=line)
        return line

    def ask_for_ever(self, window: str, model: StubModel) -> None:
        """Ask something that is answered when the model is released; return in mid-turn."""
        line = self.ask(window, HANG)
        wait_until(lambda: line in model.half_answered, "the model is asked", PATIENCE_SECONDS)

    def wait_for_answer(self, window: str) -> None:
        while True:
            kind, of = self._events.get(timeout=PATIENCE_SECONDS)
            assert kind != "error", "the turn failed"
            if (kind, of) == ("message.complete", window):
                return

    def compress(self, window: str) -> None:
        self.request("session.compress", session_id=window)

    def branch(self, window: str) -> str:
        """Copy the conversation into a new window; the old one stays."""
        return str(self.request("session.branch", session_id=window)["session_id"])

    def close(self, window: str) -> None:
        self.request("session.close", session_id=window)

    def quit(self) -> None:
        """The end of its input is what it sees when the TUI is left."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE_SECONDS)

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a call; a window is busy for a moment after it has shown an answer."""
        answer = wait_until(lambda: self._call(method, params), f"{method} is possible")
        return result_of(answer)

    def _call(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """The answer, or None if the window is busy."""
        answer = self._calls.wait(self._calls.start(method, params))
        return None if answer.get("error", {}).get("code") == _BUSY else answer

    def _hear(self, message: dict[str, Any]) -> None:
        if message["method"] == "event":
            event = message["params"]
            self._events.put((event["type"], event.get("session_id", "")))


@contextmanager
def tui(hermes: Hermes, home: Path) -> Iterator[Tui]:
    """A backend without its front end, which is a program of Node."""
    log = home.parent / f"{home.name}-tui.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [hermes.python, "-m", "tui_gateway.entry"],
            env=user_environment(hermes, home),
            cwd=home.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield Tui(home, process)
        finally:
            if process.poll() is None:
                process.kill()
