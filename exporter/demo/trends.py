"""Figures of the last 14 days, as an agent would have noted them while the demo home grew.

They follow from the home itself: which sessions were open then, how much had been said, which
files were there. So the lines on the host page end near the figures that a scan finds.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from itertools import accumulate
from typing import Final, NamedTuple
from urllib.parse import quote

import apsw
import msgspec

from exporter.agent.state_store import StateStore
from exporter.agent.trends import KEPT_SECONDS, Figures
from exporter.config.settings import Settings
from exporter.hermes.paths import classifier, classify_entry
from exporter.snapshot import DiskKind

_HOUR: Final = 3600
_DEAD_AFTER_SECONDS: Final = 3 * _HOUR
_NEW_SECONDS: Final = 600
_BLOCK: Final = 512
_NEVER: Final = float("inf")


class _Growth(NamedTuple):
    """A sum that only grows: when, and how much it was from then on."""

    times: list[float]
    sums: list[float]

    def at(self, moment: float) -> float:
        number = bisect_right(self.times, moment)
        return self.sums[number - 1] if number else 0.0


class _Past(NamedTuple):
    """What is known of a home's past."""

    sessions: list[tuple[float, float, float]]
    """Begin, end, and when an agent would have called it dead."""
    tokens: _Growth
    messages: _Growth
    files: dict[DiskKind, _Growth]


def write_trends(store: StateStore, home: str, *, now: float) -> None:
    """Store a point of this home for every hour of the last 14 days."""
    last = int(now) - 1
    past = _past(home, last)
    for at in range(last - KEPT_SECONDS + _HOUR, last + 1, _HOUR):
        figures = msgspec.json.encode(_figures(past, at, last))
        store.keep_trend(home, at, figures, at - KEPT_SECONDS)


def _figures(past: _Past, at: float, last: float) -> Figures:
    opened = [each for each in past.sessions if each[0] <= at < each[1]]
    said = past.messages.at(at) / (past.messages.at(last) or 1.0)
    return Figures(
        len(opened),
        sum(dead_at <= at for _, _, dead_at in opened),
        0,
        past.tokens.at(at),
        # The database is one file of today, so it grew as the messages in it did.
        tuple(
            int(past.files[kind].at(_NEVER) * said)
            if kind is DiskKind.STATE_DB
            else int(past.files[kind].at(at))
            for kind in DiskKind
        ),
    )


def _past(home: str, last: float) -> _Past:
    # Nothing else has it open yet, and what is in its WAL changes no row: `immutable` reads the
    # file alone, and leaves the others as they are.
    address = f"file:{quote(home)}/state.db?immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with closing(apsw.Connection(address, flags=flags)) as state:
        rows = list(
            state.execute(
                "SELECT id, source, started_at, ended_at, "
                "(SELECT max(timestamp) FROM messages WHERE session_id = sessions.id) "
                "FROM sessions ORDER BY started_at"
            )
        )
        said = list(
            state.execute(
                "SELECT timestamp, (input_tokens + output_tokens + cache_read_tokens "
                "+ cache_write_tokens + reasoning_tokens) * 1.0 "
                "/ COUNT(*) OVER (PARTITION BY session_id) "
                "FROM messages JOIN sessions ON sessions.id = session_id"
            )
        )
        routed = {
            session
            for (session,) in state.execute(
                "SELECT json_extract(entry_json, '$.session_id') FROM gateway_routing"
            )
        }
    reaped = Settings().reaper.sources
    sessions = [
        (
            began,
            _NEVER if ended is None else ended,
            (last_message or began) + _DEAD_AFTER_SECONDS
            if source in reaped and session not in routed
            else _NEVER,
        )
        for session, source, began, ended, last_message in rows
    ]
    files: dict[DiskKind, list[tuple[float, float]]] = {kind: [] for kind in DiskKind}
    for kind, written_at, size in _files(home):
        files[kind].append((min(written_at, last), size))
    for sizes in files.values():
        _spread(sizes, last)
    return _Past(
        sessions,
        _growth([(at, tokens) for at, tokens in said]),
        _growth([(at, 1.0) for at, _ in said]),
        {kind: _growth(sizes) for kind, sizes in files.items()},
    )


def _spread(steps: list[tuple[float, float]], last: float) -> None:
    """Give the files that were made with the demo, a moment ago, times within the 14 days."""
    new = [number for number, (at, _) in enumerate(steps) if at > last - _NEW_SECONDS]
    for place, number in enumerate(new):
        steps[number] = (last - KEPT_SECONDS * (1 - place / len(new)), steps[number][1])


def _growth(steps: list[tuple[float, float]]) -> _Growth:
    steps.sort()
    return _Growth([at for at, _ in steps], list(accumulate(size for _, size in steps)))


def _files(home: str) -> Iterator[tuple[DiskKind, float, float]]:
    """Yield kind, time and allocated bytes of every file and folder, but for other profiles."""
    for folder, folders, names in os.walk(home):
        below = os.path.relpath(folder, home)
        if below == ".":
            folders[:] = [name for name in folders if name != "profiles"]
        for name in (".", *names):
            found = os.lstat(os.path.join(folder, name))
            kind = _kind([*below.split("/"), name] if below != "." else [name])
            yield kind, found.st_mtime, float(found.st_blocks * _BLOCK)


def _kind(parts: list[str]) -> DiskKind:
    first, is_folder = parts[0].encode(), len(parts) > 1
    classify = classifier(first) if is_folder else None
    if classify is None:
        return classify_entry(first, is_folder)
    return classify(parts[1].encode(), len(parts) > 2)
