"""The server that editors talk to: `hermes acp`, JSON-RPC over its standard streams."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.cli import user_environment
from tests.real.hermes import Hermes
from tests.real.json_rpc import JsonRpc, result_of


class Editor:
    """An editor with a running server."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self._folder = str(folder)
        self._calls = JsonRpc(process)
        self.wait(self.start("initialize", protocolVersion=1, clientCapabilities={}))

    def create(self) -> str:
        made = self.wait(self.start("session/new", cwd=self._folder, mcpServers=[]))
        return str(made["sessionId"])

    def fork(self, session: str) -> str:
        number = self.start("session/fork", sessionId=session, cwd=self._folder, mcpServers=[])
        return str(self.wait(number)["sessionId"])

    def ask(self, session: str, words: str) -> int:
        """Begin a turn; return its number to wait for."""
        said = [{"type": "text", "text": words}]
        return self.start("session/prompt", sessionId=session, prompt=said)

    def start(self, method: str, **params: Any) -> int:
        return self._calls.start(method, params)

    def wait(self, number: int) -> dict[str, Any]:
        return result_of(self._calls.wait(number))


@contextmanager
def editor(hermes: Hermes, home: Path) -> Iterator[Editor]:
    log = home.parent / f"{home.name}-acp.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [hermes.python, hermes.program, "acp"],
            env=user_environment(hermes, home),
            cwd=home.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            yield Editor(process, home.parent)
        finally:
            process.kill()
