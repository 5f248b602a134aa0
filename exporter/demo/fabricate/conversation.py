"""Fills an outline of a session with words: plainly invented ones, and the rows that hold them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from exporter.demo.fabricate.database import MessageRow, SessionRow, UsageRow
from exporter.demo.fabricate.population import Outline

_SYLLABLES = [a + b for a in "bdfglmnprstv" for b in ("a", "e", "i", "o", "u", "ar", "en", "il")]
_TOOLS = ("terminal", "read_file", "write_file", "search_files", "web_search", "patch")
_STUCK_CALLS = 14
_STEPS_PER_TURN = (0, 0, 1, 1, 2, 3, 5)


class Model(NamedTuple):
    """An invented model and its price in USD per million tokens."""

    name: str
    input_price: float
    output_price: float


MODELS = (
    Model("example/orchard-large", 3.0, 15.0),
    Model("example/orchard-small", 0.25, 1.25),
    Model("example/pebble-code", 1.1, 4.4),
)


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
        """So many characters from anywhere in the pool."""
        start = self._rng.randrange(max(len(self._pool) - size, 1))
        return self._pool[start : start + size]

    def about(self, mean: int) -> str:
        """A passage of any length, mostly short, sometimes many times the mean."""
        return self.passage(10 + int(self._rng.expovariate(1 / mean)))


class Story(NamedTuple):
    """A session with all its rows."""

    session: SessionRow
    messages: list[MessageRow]
    usage: list[UsageRow]


def tell(
    outline: Outline, *, prose: Prose, rng: Random, message_size: int, prompt_size: int
) -> Story:
    """Write one session out; sizes are in characters, the messages' a mean."""
    messages = list(_messages(outline, prose, rng, message_size))
    model = rng.choices(MODELS, (5, 3, 2))[0]
    usage = [_usage(outline, model, messages, rng)] if messages else []
    return Story(_session(outline, model, messages, usage, prose, prompt_size), messages, usage)


def _messages(outline: Outline, prose: Prose, rng: Random, size: int) -> Iterator[MessageRow]:
    count = outline.messages
    parts = _parts(outline, rng)
    pace = (outline.last_at - outline.started_at) / max(count, 1)
    tool = call_id = ""
    for index, part in enumerate(parts):
        at = outline.started_at + (index + 1) * pace
        failing = outline.stuck and index >= count - 2 * _STUCK_CALLS
        if part == "user":
            yield MessageRow(outline.id, "user", prose.about(size // 2), at)
        elif part == "call":
            tool = _TOOLS[0] if failing else rng.choice(_TOOLS)
            call_id = f"call_{index:06d}"
            called = {"name": tool, "arguments": json.dumps({"text": prose.about(size // 4)})}
            calls = json.dumps([{"id": call_id, "type": "function", "function": called}])
            yield MessageRow(
                outline.id, "assistant", "", at, tool_calls=calls, finish_reason="tool_calls"
            )
        elif part == "tool":
            result = _result(prose.about(2 * size), failed=failing or rng.random() < 0.05)
            yield MessageRow(outline.id, "tool", result, at, tool_call_id=call_id, tool_name=tool)
        else:
            yield MessageRow(
                outline.id,
                "assistant",
                prose.about(size),
                at,
                token_count=size // 4,
                finish_reason="stop",
                reasoning=prose.about(size // 2) if rng.random() < 0.3 else None,
            )


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


def _usage(outline: Outline, model: Model, messages: list[MessageRow], rng: Random) -> UsageRow:
    calls = sum(message.role == "assistant" for message in messages)
    fresh, cached, output = calls * rng.randint(200, 900), calls * 5_000, calls * 150
    dollars = (fresh + cached / 10) * model.input_price + output * model.output_price
    return UsageRow(
        session_id=outline.id,
        model=model.name,
        api_call_count=calls,
        input_tokens=fresh,
        output_tokens=output,
        cache_read_tokens=cached,
        cache_write_tokens=fresh // 2,
        reasoning_tokens=output // 3,
        estimated_cost_usd=round(dollars / 1e6, 6),
        actual_cost_usd=round(dollars / 1e6, 4) if model is MODELS[2] else 0.0,
        first_seen=outline.started_at,
        last_seen=outline.last_at,
    )


def _session(
    outline: Outline,
    model: Model,
    messages: list[MessageRow],
    usage: list[UsageRow],
    prose: Prose,
    prompt_size: int,
) -> SessionRow:
    chat = str(outline.chat) if outline.chat else None
    used = usage[0] if usage else None
    return SessionRow(
        id=outline.id,
        source=outline.source,
        started_at=outline.started_at,
        ended_at=outline.last_at if outline.end_reason else None,
        end_reason=outline.end_reason,
        model=model.name,
        model_config=(
            json.dumps({"_delegate_from": outline.parent_id}) if outline.parent_id else None
        ),
        system_prompt=prose.passage(prompt_size),
        parent_session_id=outline.parent_id,
        message_count=len(messages),
        tool_call_count=sum(message.tool_calls is not None for message in messages),
        api_call_count=used.api_call_count if used else 0,
        input_tokens=used.input_tokens if used else 0,
        output_tokens=used.output_tokens if used else 0,
        cache_read_tokens=used.cache_read_tokens if used else 0,
        cache_write_tokens=used.cache_write_tokens if used else 0,
        reasoning_tokens=used.reasoning_tokens if used else 0,
        estimated_cost_usd=used.estimated_cost_usd if used else None,
        actual_cost_usd=used.actual_cost_usd or None if used else None,
        cost_status="estimated" if used else None,
        title=f"Invented talk {outline.id}" if len(messages) > 5 else None,
        user_id=chat,
        session_key=session_key(outline),
        chat_id=chat,
        chat_type="dm" if chat else None,
    )


def session_key(outline: Outline) -> str | None:
    """The key under which the gateway routes this session's chat."""
    if outline.chat is None:
        return None
    return f"agent:main:{outline.source}:dm:{outline.chat}"
