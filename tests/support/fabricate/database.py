"""A state.db made of typed rows, for tests that choose each row themselves."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self

from exporter.demo.database import insert, new_state


class SessionRow(NamedTuple):
    """A row of `sessions`; columns not named here take their default."""

    id: str
    source: str
    started_at: float
    ended_at: float | None = None
    end_reason: str | None = None
    model: str | None = None
    model_config: str | None = None
    system_prompt: str | None = None
    parent_session_id: str | None = None
    message_count: int = 0
    tool_call_count: int = 0
    api_call_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated_cost_usd: float | None = None
    actual_cost_usd: float | None = None
    cost_status: str | None = None
    title: str | None = None
    cwd: str | None = None
    user_id: str | None = None
    session_key: str | None = None
    chat_id: str | None = None
    chat_type: str | None = None


class MessageRow(NamedTuple):
    """A row of `messages`; its id follows the order of insertion."""

    session_id: str
    role: str
    content: str | None
    timestamp: float
    tool_call_id: str | None = None
    tool_calls: str | None = None
    tool_name: str | None = None
    token_count: int | None = None
    finish_reason: str | None = None
    reasoning: str | None = None


class UsageRow(NamedTuple):
    """A row of `session_model_usage`: what one session used of one model."""

    session_id: str
    model: str
    api_call_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    estimated_cost_usd: float
    actual_cost_usd: float
    first_seen: float
    last_seen: float


class StateDatabase:
    """A state.db under construction; the end of the block completes it, an error discards it."""

    def __init__(self, path: str) -> None:
        self._making = new_state(path)

    def __enter__(self) -> Self:
        self._connection = self._making.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._making.__exit__(kind, value, traceback)

    def add_session(
        self, session: SessionRow, messages: Iterable[MessageRow], usage: Iterable[UsageRow] = ()
    ) -> None:
        """Add a session with all its messages and what it used."""
        insert(self._connection, "sessions", [session._asdict()])
        insert(self._connection, "messages", (row._asdict() for row in messages))
        insert(self._connection, "session_model_usage", (row._asdict() for row in usage))
