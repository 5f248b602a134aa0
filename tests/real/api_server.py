"""The API server of a real gateway, asked as a client would."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.cli import gateway
from tests.real.hermes import Hermes
from tests.real.terminal import PATIENCE_SECONDS
from tests.real.waiting import wait_until

_KEY = "0123456789abcdef" * 4


class ApiServer:
    """A running gateway with an API server."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self._url = f"http://127.0.0.1:{port}"
        wait_until(self._answers, "the API server answers", PATIENCE_SECONDS)

    def chat(self, session: str, words: str) -> threading.Thread:
        """Begin a turn on a session; the thread ends with it."""
        request = {"message": words, "input": words}
        thread = threading.Thread(
            target=self._post, args=(f"/api/sessions/{session}/chat", request), daemon=True
        )
        thread.start()
        return thread

    def complete(self, session: str, words: str) -> str:
        """One turn of an OpenAI client that names its session; return the session afterwards."""
        body = {"model": "hermes-agent", "messages": [{"role": "user", "content": words}]}
        headers = {"X-Hermes-Session-Id": session}
        request = self._request("/v1/chat/completions", body, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
            json.load(response)
            return str(response.headers["X-Hermes-Session-Id"])

    def fork(self, session: str) -> str:
        """Copy a conversation; return the new session. From 0.16 on."""
        found = self._post(f"/api/sessions/{session}/fork", {})
        return str((found.get("session") or found)["id"])

    def start_run(self, session: str, words: str) -> None:
        """A turn without an open connection."""
        self._post("/v1/runs", {"input": words, "session_id": session})

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        request = self._request(path, body, {})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
            return json.load(response)

    def _request(
        self, path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> urllib.request.Request:
        common = {"Authorization": f"Bearer {_KEY}", "Content-Type": "application/json"}
        data = json.dumps(body).encode()
        return urllib.request.Request(f"{self._url}{path}", data, common | headers)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=10) as response:
                return bool(response.status == 200)
        except OSError:
            return False


@contextmanager
def api_server(hermes: Hermes, home: Path) -> Iterator[ApiServer]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"ENABLED": "true", "HOST": "127.0.0.1", "PORT": port, "KEY": _KEY}
    lines = (f"API_SERVER_{name}={value}\n" for name, value in settings.items())
    (home / ".env").write_text("".join(lines))
    with gateway(hermes, home) as process:
        yield ApiServer(process, port)
