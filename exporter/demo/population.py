"""Which sessions a home has: how many, how long, from where, and which stay open.

Only outlines are made here, a few hundred bytes each, so that a home of a hundred thousand
sessions can be planned in memory; `conversation` fills them one at a time.
"""

from __future__ import annotations

import time
from random import Random
from typing import NamedTuple

CRON_JOBS = 5
_SECONDS_PER_MESSAGE = 30.0


class Shape(NamedTuple):
    """How many sessions of which length."""

    sessions: int
    empty: int
    short: int
    """With at most five messages, the empty ones included."""
    long: int
    """With more than a hundred."""
    longest: int
    messages: int
    open: int


class SourceShare(NamedTuple):
    """Where sessions come from, how large a share, and how they end when they do."""

    source: str
    share: int
    end_reasons: tuple[str, ...]
    is_chat: bool = False


ORIGINS = (
    SourceShare("cli", 42, ("cli_close", "cli_close", "agent_close", "new_session")),
    SourceShare("cron", 20, ("cron_complete",)),
    SourceShare("telegram", 12, ("session_reset", "idle"), is_chat=True),
    SourceShare("subagent", 12, ("agent_close",)),
    SourceShare("discord", 6, ("session_reset", "session_switch"), is_chat=True),
    SourceShare("tui", 5, ("tui_close", "ws_orphan_reap")),
    SourceShare("api_server", 2, ("agent_close",)),
    SourceShare("webhook", 1, ("webhook_complete",)),
)


class Outline(NamedTuple):
    """One session before it has words."""

    id: str
    source: str
    messages: int
    started_at: float
    last_at: float
    """Return when its last message came; its start if it has none."""
    end_reason: str | None
    """None while it is open."""
    chat: int | None
    parent_id: str | None
    stuck: bool
    """Its last tool calls repeat and fail."""


def outlines(shape: Shape, *, now: float, days: float, rng: Random) -> list[Outline]:
    """The sessions of a home over the last `days`, oldest first."""
    counts = _order(message_counts(shape, rng), rng)
    starts = _starts(len(counts), now, days * 86400, rng)
    longest = max(counts)
    drawn = rng.choices(ORIGINS, [origin.share for origin in ORIGINS], k=len(counts))
    origins = [
        ORIGINS[0] if count == longest else origin
        for count, origin in zip(counts, drawn, strict=True)
    ]
    chats = _chats(origins, rng)
    still_open = _open(shape, counts, origins, chats, rng)
    made: list[Outline] = []
    parent: str | None = None
    for index, (count, started_at, origin) in enumerate(zip(counts, starts, origins, strict=True)):
        pace = rng.lognormvariate(0, 0.6) * _SECONDS_PER_MESSAGE
        outline = Outline(
            id=_session_id(origin, index, started_at),
            source=origin.source,
            messages=count,
            started_at=started_at,
            last_at=min(started_at + count * pace, now),
            end_reason=None if index in still_open else rng.choice(origin.end_reasons),
            chat=chats.get(index),
            parent_id=parent if origin.source == "subagent" else None,
            stuck=count == longest,
        )
        if origin.source == "cli":
            parent = outline.id
        made.append(outline)
    return made


def message_counts(shape: Shape, rng: Random) -> list[int]:
    """Messages per session, in no order, adding up to `shape.messages` exactly."""
    short = [rng.randint(1, 5) for _ in range(shape.short - shape.empty)]
    heatmap_panel = shape.longest - 101
    long = [
        shape.longest,
        *(101 + int(heatmap_panel * rng.random() ** 4) for _ in range(shape.long - 1)),
    ]
    rest = shape.sessions - shape.short - shape.long
    wanted = shape.messages - sum(short) - sum(long)
    if not 6 * rest <= wanted <= 100 * rest:
        raise ValueError(f"{wanted} messages do not fit {rest} sessions of 6 to 100: {shape}")
    skew = max(94 / max(wanted / rest - 6, 1) - 1, 0.01)
    middle = [6 + int(95 * rng.random() ** skew) for _ in range(rest)]
    _nudge(middle, wanted - sum(middle))
    return [0] * shape.empty + short + middle + long


def _nudge(counts: list[int], missing: int) -> None:
    """Move counts by one, within 6 to 100, until their sum has changed by `missing`."""
    step = 1 if missing > 0 else -1
    while missing:
        for index, count in enumerate(counts):
            if missing and 6 <= count + step <= 100:
                counts[index] += step
                missing -= step


def _starts(count: int, now: float, seconds: float, rng: Random) -> list[float]:
    """Return when each session began, oldest first, no two in one second: ids name the second."""
    starts = sorted(now - rng.random() * seconds for _ in range(count))
    for index in range(count - 2, -1, -1):
        starts[index] = min(starts[index], starts[index + 1] - 1)
    return starts


def _order(counts: list[int], rng: Random) -> list[int]:
    """Shuffle, with one of the long ones late: it is a marathon that is still going."""
    late = counts.pop()
    rng.shuffle(counts)
    counts.insert(len(counts) * 97 // 100, late)
    return counts


def _chats(origins: list[SourceShare], rng: Random) -> dict[int, int]:
    """Return the chat of each messaging session, by index: about three sessions a chat."""
    chats: dict[int, int] = {}
    # Sorted: the order of a set of names is another one in every process.
    for source in sorted({origin.source for origin in origins if origin.is_chat}):
        of_source = [index for index, origin in enumerate(origins) if origin.source == source]
        first = 1 + max(chats.values(), default=1_000_000)
        room = max(len(of_source) // 3, 1)
        chats |= {index: first + rng.randrange(room) for index in of_source}
    return chats


def _open(
    shape: Shape, counts: list[int], origins: list[SourceShare], chats: dict[int, int], rng: Random
) -> set[int]:
    """The sessions that were never ended: each chat's newest, the longest, and leaks anywhere."""
    still_open = set({chat: index for index, chat in sorted(chats.items())}.values())
    still_open.add(counts.index(max(counts)))
    others = [
        index
        for index, origin in enumerate(origins)
        if not origin.is_chat and index not in still_open
    ]
    return still_open | set(rng.sample(others, shape.open - len(still_open)))


def _session_id(origin: SourceShare, index: int, started_at: float) -> str:
    """An id of the shape Hermes gives this source, unique by second and index."""
    moment = time.strftime("%Y%m%d_%H%M%S", time.localtime(started_at))
    mixed = index * 0x9E3779B1
    if origin.source == "cron":
        return f"cron_{index % CRON_JOBS:012x}_{moment}"
    if origin.source == "api_server":
        return f"api_{int(started_at)}_{mixed & 0xFFFFFFFF:08x}"
    if origin.is_chat:
        return f"{moment}_{mixed & 0xFFFFFFFF:08x}"
    return f"{moment}_{mixed & 0xFFFFFF:06x}"
