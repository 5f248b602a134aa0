"""JSON-RPC over the standard streams of a process: Hermes's ACP server and TUI backend."""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from tests.real.terminal import PATIENCE_SECONDS


class JsonRpc:
    """Calls to a process. What it says by itself goes to `heard`."""

    def __init__(
        self,
        process: subprocess.Popen[str],
        heard: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self._process = process
        self._heard = heard
        self._ids = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, method: str, params: dict[str, Any]) -> int:
        """Send a call; return its number to wait for."""
        assert self._process.stdin is not None
        number = next(self._ids)
        self._answers[number] = queue.Queue()
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        return number

    def wait(self, number: int) -> dict[str, Any]:
        """Return the whole answer, which may be an error."""
        return self._answers[number].get(timeout=PATIENCE_SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "method" in message:
                self._heard(message)
            elif message.get("id") in self._answers:
                self._answers[message["id"]].put(message)


def result_of(answer: dict[str, Any]) -> dict[str, Any]:
    assert "error" not in answer, answer
    result: dict[str, Any] = answer["result"]
    return result
