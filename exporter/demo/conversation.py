"""Fills an outline of a session with words: plainly invented ones, and the rows that hold them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import apsw

from exporter.demo.database import Row, insert
from exporter.demo.population import Outline

_SYLLABLES = [a + b for a in "bdfglmnprstv" for b in ("a", "e", "i", "o", "u", "ar", "en", "il")]
_TOOLS = ("terminal", "read_file", "write_file", "search_files", "web_search", "patch")
_STUCK_CALLS = 14
_STEPS_PER_TURN = (0, 0, 1, 1, 2, 3, 5)
_CODE_MODEL = "example/pebble-code"
_PRICES = {
    "example/orchard-large": (3.0, 15.0),
    "example/orchard-small": (0.25, 1.25),
    _CODE_MODEL: (1.1, 4.4),
}
"""Of a million tokens in and out, in USD."""


class Prose:
    """A pool of invented words, from which passages are cut."""

    def __init__(self, rng: Random, *, vocabulary: int, length: int) -> None:
        words = [
            "".join(rng.choices(_SYLLABLES, k=rng.choice((1, 2, 2, 3)))) for _ in range(vocabulary)
        ]
        weights = [1 / (rank + 5) for rank in range(vocabulary)]
        self._rng = rng
        self._pool = " ".join(rng.choices(words, weights, k=length // 5))

    def passage(self, size: int) -> str:
        """Return this many characters from anywhere in the pool."""
        start = self._rng.randrange(max(len(self._pool) - size, 1))
        return self._pool[start : start + size]

    def about(self, mean: int) -> str:
        """A passage of any length, mostly short, sometimes many times the mean."""
        return self.passage(10 + int(self._rng.expovariate(1 / mean)))


class Story(NamedTuple):
    """A session with all its rows."""

    session: Row
    messages: list[Row]
    usage: list[Row]

    @property
    def last_at(self) -> float:
        """Return when its last message came; its start if it has none."""
        last: float = (
            self.messages[-1]["timestamp"] if self.messages else self.session["started_at"]
        )
        return last

    def insert_into(self, database: apsw.Connection) -> None:
        insert(database, "sessions", [self.session])
        insert(database, "messages", self.messages)
        insert(database, "session_model_usage", self.usage)


def tell(
    outline: Outline, *, prose: Prose, rng: Random, message_size: int, prompt_size: int
) -> Story:
    """Write one session out; sizes are in characters, the messages' a mean."""
    messages = list(_messages(outline, prose, rng, message_size))
    model = rng.choices(list(_PRICES), (5, 3, 2))[0]
    calls = sum(message["role"] == "assistant" for message in messages)
    used = _used(model, calls, rng) if messages else {}
    chat = str(outline.chat) if outline.chat else None
    delegate = json.dumps({"_delegate_from": outline.parent_id}) if outline.parent_id else None
    session = {
        "id": outline.id,
        "source": outline.source,
        "started_at": outline.started_at,
        "ended_at": outline.last_at if outline.end_reason else None,
        "end_reason": outline.end_reason,
        "model": model,
        "model_config": delegate,
        "system_prompt": prose.passage(prompt_size),
        "parent_session_id": outline.parent_id,
        "message_count": len(messages),
        "tool_call_count": sum("tool_calls" in message for message in messages),
        "title": f"Invented talk {outline.id}" if len(messages) > 5 else None,
        "user_id": chat,
        "session_key": f"agent:main:{outline.source}:dm:{chat}" if chat else None,
        "chat_id": chat,
        "chat_type": "dm" if chat else None,
    }
    if not used:
        return Story(session, messages, [])
    usage = used | {
        "session_id": outline.id,
        "model": model,
        "first_seen": outline.started_at,
        "last_seen": outline.last_at,
    }
    paid = {"actual_cost_usd": used["actual_cost_usd"] or None, "cost_status": "estimated"}
    return Story(session | used | paid, messages, [usage])


def _used(model: str, calls: int, rng: Random) -> Row:
    """Return what a session used, in the columns that its row and its model's row share."""
    fresh, cached, output = calls * rng.randint(200, 900), calls * 5_000, calls * 150
    input_price, output_price = _PRICES[model]
    dollars = ((fresh + cached / 10) * input_price + output * output_price) / 1e6
    return {
        "api_call_count": calls,
        "input_tokens": fresh,
        "output_tokens": output,
        "cache_read_tokens": cached,
        "cache_write_tokens": fresh // 2,
        "reasoning_tokens": output // 3,
        "estimated_cost_usd": round(dollars, 6),
        "actual_cost_usd": round(dollars, 4) if model == _CODE_MODEL else 0.0,
    }


def _messages(outline: Outline, prose: Prose, rng: Random, size: int) -> Iterator[Row]:
    pace = (outline.last_at - outline.started_at) / max(outline.messages, 1)
    tool = call_id = ""
    for index, part in enumerate(_parts(outline, rng)):
        row: Row = {
            "session_id": outline.id,
            "role": "assistant",
            "content": "",
            "timestamp": outline.started_at + (index + 1) * pace,
        }
        failing = outline.stuck and index >= outline.messages - 2 * _STUCK_CALLS
        if part == "user":
            row |= {"role": "user", "content": prose.about(size // 2)}
        elif part == "call":
            tool = _TOOLS[0] if failing else rng.choice(_TOOLS)
            call_id = f"call_{index:06d}"
            called = {"name": tool, "arguments": json.dumps({"text": prose.about(size // 4)})}
            calls = json.dumps([{"id": call_id, "type": "function", "function": called}])
            row |= {"tool_calls": calls, "finish_reason": "tool_calls"}
        elif part == "tool":
            result = _result(prose.about(2 * size), failed=failing or rng.random() < 0.05)
            row |= {"role": "tool", "content": result, "tool_call_id": call_id, "tool_name": tool}
        else:
            row |= {"content": prose.about(size), "token_count": size // 4, "finish_reason": "stop"}
            row["reasoning"] = prose.about(size // 2) if rng.random() < 0.3 else None
        yield row


def _parts(outline: Outline, rng: Random) -> list[str]:
    """What each message is: cut anywhere, as a kill does, unless the session ended well."""
    count = outline.messages
    parts: list[str] = []
    while len(parts) < count:
        parts += ["user", *["call", "tool"] * rng.choice(_STEPS_PER_TURN), "answer"]
    del parts[count:]
    if outline.stuck:
        parts[-2 * _STUCK_CALLS :] = ["call", "tool"] * _STUCK_CALLS
    elif outline.end_reason and count > 1 and parts[-1] != "answer":
        parts[-2:] = ["user", "answer"]
    return parts


def _result(text: str, *, failed: bool) -> str:
    if failed:
        return json.dumps({"output": "", "exit_code": 1, "error": "invented failure: " + text[:80]})
    return json.dumps({"output": text, "exit_code": 0})
