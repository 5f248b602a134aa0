"""A model on loopback that speaks as much of OpenAI's streaming API as Hermes needs.

It answers every question in two pieces. A question that contains HANG gets only the first piece;
the rest follows when the test lets it. One that contains USE_TOOL gets a call of the terminal that
lasts until a test ends it. One that contains STREAM gets piece after piece until the test lets it
end. One that begins with DELEGATE makes a subagent of what follows. One
that contains FILL gets an answer that is longer than Hermes keeps without compressing.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HANG = "think for ever"
DELEGATE = "let a helper"
FILL = "tell all you know"
STREAM = "tell a long story"
USE_TOOL = "use a tool"
LEAVE_TOOL = "leave a tool running"
ANSWER = ("Well, ", "hello.")
TOOL_COMMAND = "sleep 3600"
LONG_ANSWER = "All that I know, and more. " * 10_000
"""About 67,000 tokens by Hermes's own estimate: above the least threshold, which is 64,000."""
_LARGE_REQUEST_BYTES = 200_000
_BETWEEN_PIECES_SECONDS = 0.03
_ENDS_HANGING = re.compile(rf"{HANG} \d+$")


class StubModel:
    """A running stub."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.hanging = threading.Event()
        """Set once a question that hangs has got its first piece."""
        self.half_answered: list[str] = []
        """The questions that hang and have got their first piece."""
        self.release = threading.Event()
        """Set it to let hanging answers end."""
        self.questions: list[str] = []
        """The last user message of each request so far."""

    def configure(self, home: Path, context_length: int = 128_000, **settings: Any) -> None:
        """Make a home use this model and no other; `settings` go to its configuration too."""
        model = {
            "default": "stub-1",
            "provider": "custom",
            "base_url": f"{self.url}/v1",
            "api_key": "sk-stub",
            "context_length": context_length,
        }
        home.mkdir(mode=0o700, exist_ok=True)
        # JSON is YAML too.
        (home / "config.yaml").write_text(json.dumps({"model": model, **settings}))


@contextmanager
def stub_model() -> Iterator[StubModel]:
    """Serve on a free loopback port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        host, port = server.server_address[:2]
        stub = StubModel(f"http://{host!s}:{port}")
        server.RequestHandlerClass.stub = stub  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield stub
        finally:
            stub.release.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    stub: StubModel
    tokens = 11

    def do_GET(self) -> None:
        self._send_json({"object": "list", "data": [{"id": "stub-1", "object": "model"}]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(body)
        question = _question(request)
        self.stub.questions.append(question)
        self.tokens = len(body) // 4 if len(body) > _LARGE_REQUEST_BYTES else 11
        if request.get("stream"):
            self._start_stream()
            call = _tool_call(question) if request["messages"][-1]["role"] == "user" else None
            if call:
                self._end_stream({"tool_calls": [call]}, "tool_calls")
            else:
                self._answer(question)
        else:
            if _ENDS_HANGING.search(question):  # cron jobs do not stream, nor do helpers of Hermes
                self.stub.half_answered.append(question)
                self.stub.release.wait()
            message = {"role": "assistant", "content": "".join(ANSWER)}
            self._send_json(_completion("message", message, "stop"))

    def _start_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()

    def _answer(self, question: str) -> None:
        self._send_piece(_completion("delta", {"role": "assistant", "content": ANSWER[0]}))
        if HANG in question:
            self.stub.half_answered.append(question)
            self.stub.hanging.set()
            self.stub.release.wait()
        while STREAM in question and not self.stub.release.wait(_BETWEEN_PIECES_SECONDS):
            self._send_piece(_completion("delta", {"content": "and then they went on, "}))
        self._end_stream({"content": LONG_ANSWER if FILL in question else ANSWER[1]}, "stop")

    def _end_stream(self, last: dict[str, Any], finish_reason: str) -> None:
        self._send_piece(_completion("delta", last))
        self._send_piece(_completion("delta", {}, finish_reason))
        self._write(b"data: [DONE]\n\n")

    def _send_piece(self, piece: dict[str, Any]) -> None:
        # Hermes trusts what it is told of the last request's size more than its own estimate.
        piece["usage"] |= {"prompt_tokens": self.tokens, "total_tokens": self.tokens + 3}
        self._write(f"data: {json.dumps(piece)}\n\n".encode())

    def _send_json(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self._write(body)

    def _write(self, data: bytes) -> None:
        try:
            self.wfile.write(data)
            self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            # The client was killed: that is what the test is about.
            pass

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _question(request: dict[str, Any]) -> str:
    asked = [m["content"] for m in request.get("messages", []) if m.get("role") == "user"]
    return str(asked[-1]) if asked else ""


def _tool_call(question: str) -> dict[str, Any] | None:
    if LEAVE_TOOL in question:
        function, arguments = "terminal", {"command": TOOL_COMMAND, "background": True}
    elif USE_TOOL in question:
        function, arguments = "terminal", {"command": TOOL_COMMAND}
    elif question.startswith(DELEGATE):
        function, arguments = "delegate_task", {"goal": question.removeprefix(DELEGATE).strip()}
    else:
        return None
    called = {"name": function, "arguments": json.dumps(arguments)}
    return {"index": 0, "id": "call_stub", "type": "function", "function": called}


def _completion(
    part: str, content: dict[str, Any], finish_reason: str | None = None
) -> dict[str, Any]:
    return {
        "id": "chatcmpl-stub",
        "object": "chat.completion.chunk" if part == "delta" else "chat.completion",
        "created": 1,
        "model": "stub-1",
        "choices": [{"index": 0, part: content, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
    }
