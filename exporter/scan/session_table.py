"""All sessions of a home, kept as sums, so that an update costs only what has changed.

An ended session is kept as one integer: its contribution to the sums, and a fingerprint of its
usage. The contribution is subtracted again when the session changes. Only open sessions are kept as
objects. That is about 50 bytes per session where there are many: homes with 100,000 exist.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from sys import intern
from typing import Final, NamedTuple, TypeVar

from msgspec import structs

from exporter.hermes.odd_rows import HANDED_OFF
from exporter.hermes.session_queries import SessionRecord, fingerprints, models_of
from exporter.hermes.turns import NO_CONVERSATION, Conversation
from exporter.scan.options import OPEN_SESSIONS_MAX
from exporter.scan.packed_integers import PackedIntegers
from exporter.snapshot import (
    IDLE_BUCKETS,
    MESSAGE_BUCKETS,
    EndedCount,
    Hold,
    MessageHistogram,
    OpenSession,
    SessionSummary,
    SessionUsage,
    session_key,
)

_K = TypeVar("_K")
OTHER: Final = "other"
_WORDS_MAX: Final = 64
_ENDED_PAIRS_MAX: Final = 256
"""The most pairs that the agent accepts in a snapshot; the rest is counted as `other`."""
_ACTIVE_MAX: Final = (1 << 24) - 1
_NO_HOLDS: Final[list[Hold]] = []
"""One list for nearly all open sessions; no code changes the holds of a session in place."""
_FUTURE_TOLERANCE_SECONDS: Final = 60.0
_RECENT_SECONDS: Final = 600.0


_CONTRIBUTION_BITS: Final = 42
"""A session's contribution to the sums: two flags, numbers of source and reason, messages."""
_CONTRIBUTION_MASK: Final = (1 << _CONTRIBUTION_BITS) - 1
_IS_OPEN: Final = 1
_IS_WRITTEN_AFTER_END: Final = 2
_EMPTIED: Final = 3
"""Both flags, which no other session has: only the row is left, and it counts as no session."""


class _WordNumbers(dict[str, int]):
    """Numbers for the few distinct words of a column; beyond the limit all are `other`."""

    def __init__(self) -> None:
        super().__init__({OTHER: 0})
        self.words: list[str] = [OTHER]

    def __missing__(self, word: str) -> int:
        if len(self.words) >= _WORDS_MAX:
            return 0
        self[word] = len(self.words)
        self.words.append(word)
        return self[word]


class _Extremes(NamedTuple):
    """Figures that only a few of the open sessions decide."""

    oldest: float | None
    errors: int
    repeats: int

    @classmethod
    def of(cls, sessions: Collection[OpenSession]) -> _Extremes:
        return cls(
            min((began for session in sessions if (began := session.started_at)), default=None),
            max((session.tool_error_streak for session in sessions), default=0),
            max((session.tool_repeat_streak for session in sessions), default=0),
        )

    def depend_on(self, session: OpenSession) -> bool:
        return (
            session.started_at == self.oldest
            or session.tool_error_streak == self.errors > 0
            or session.tool_repeat_streak == self.repeats > 0
        )

    def joined_by(self, session: OpenSession) -> _Extremes:
        began = [each for each in (self.oldest, session.started_at) if each]
        oldest = min(began, default=None)
        errors = max(self.errors, session.tool_error_streak)
        return _Extremes(oldest, errors, max(self.repeats, session.tool_repeat_streak))


class SessionTable:
    """The sums over all sessions, and the open sessions themselves."""

    def __init__(self, open_max: int = OPEN_SESSIONS_MAX) -> None:
        self.open_max = open_max
        """Open sessions to keep; more are only counted. A home with so many judges nothing."""
        self._packed = PackedIntegers()
        self._unsettled: Counter[int] = Counter()
        """Contributions that are not in the sums yet, with their number of sessions."""
        self._sources = _WordNumbers()
        self._reasons = _WordNumbers()
        self._open_by_source: Counter[int] = Counter()
        self._ended: Counter[tuple[int, int]] = Counter()
        self._sizes: Counter[tuple[int, int]] = Counter()
        self._open_sizes: Counter[int] = Counter()
        self._ended_sizes: Counter[int] = Counter()
        self._written_after_end: Counter[int] = Counter()
        self.unreadable = 0
        """Rows that identify no session: their id is too long, or not text."""
        self.open: dict[str, OpenSession] = {}
        self._moved: set[str] | None = None
        """None until the first call of `take_moved`."""
        self.reopened: set[str] = set()
        """Open sessions that an earlier pass saw ended: they are older than they look."""
        self._recent_ids: set[str] = set()
        """Open sessions that were active when they were last put."""
        self._protected_ids: set[str] = set()
        """Open sessions whose clocks are not sane: few, so that each scan can look at them."""
        self._activities: list[float] | None = None
        """Activity times of the open sessions, sorted; computed when needed."""
        self._extremes: _Extremes | None = None
        self._summary: tuple[tuple[int, int, float], SessionSummary] | None = None

    def add_moved(self, ancestors: Iterable[str]) -> None:
        """Note the ancestors of sessions with new messages.

        `put` notes parents, but does not know what an ended session descends from: a subagent that
        was compressed works on in a child of its ended row, and its parent waits for it.
        """
        if self._moved is not None:
            self._moved.update(ancestors)

    def take_moved(self) -> set[str] | None:
        """Return the sessions that changed since the last call, their parents and ancestors.

        None means all: the table was empty at the last call.
        """
        moved, self._moved = self._moved, set()
        return moved

    def __contains__(self, session_id: str) -> bool:
        """True if it existed when it was last read; a deletion may be noticed later."""
        return self._packed.get(hash(session_id)) is not None

    def is_emptied(self, session_id: str) -> bool:
        """True if only its row is left, as a prune has left it."""
        packed = self._packed.get(hash(session_id)) or 0
        return packed & _CONTRIBUTION_MASK == _EMPTIED

    def has_ended_for(self, session_id: str, reason: str) -> bool:
        """True if it has ended for this reason; for a rare reason, perhaps for another rare one."""
        packed = self._packed.get(hash(session_id))
        packed = _IS_OPEN if packed is None else packed
        is_ended = packed & _EMPTIED in (0, _IS_WRITTEN_AFTER_END)
        return is_ended and packed >> 10 & 0xFF == self._reasons[reason]

    def end_reason(self, session_id: str) -> str | None:
        """Return why a session has ended, `other` for a rare reason; None if it has not."""
        packed = self._packed.get(hash(session_id))
        packed = _IS_OPEN if packed is None else packed
        is_ended = packed & _EMPTIED in (0, _IS_WRITTEN_AFTER_END)
        return self._reasons.words[packed >> 10 & 0xFF] if is_ended else None

    def __len__(self) -> int:
        return len(self._packed)

    def put(
        self,
        records: Sequence[SessionRecord],
        conversations: Mapping[str, Conversation],
        now: float,
    ) -> list[SessionRecord]:
        """Add or replace sessions; return those that used more than before.

        `conversations` holds the state of the open ones; a session without messages is not in it.
        """
        changed: list[SessionRecord] = []
        added: list[int] = []
        newer: dict[int, int] = {}
        known, moved, fresh = self._packed.get, self._moved, 0
        for record, packed in zip(records, self._pack(records), strict=True):
            row = record.row
            session_id = row.id
            key = hash(session_id)
            before = newer[key] if key in newer else known(key)
            if packed != before:
                if moved is not None:
                    moved.add(session_id)
                    if row.parent_id is not None:
                        moved.add(row.parent_id)
                added.append(packed & _CONTRIBUTION_MASK)
                newer[key] = packed
                if before is None:
                    fresh += 1
                    if record.used_anything():
                        changed.append(record)
                else:
                    self._unsettled[before & _CONTRIBUTION_MASK] -= 1
                    if (packed ^ before) >> _CONTRIBUTION_BITS:
                        changed.append(record)
            if row.is_open:
                if before is not None and before & _EMPTIED != _IS_OPEN:
                    self.reopened.add(session_id)
                if session_id in self.open or len(self.open) < self.open_max:
                    conversation = conversations.get(session_id, NO_CONVERSATION)
                    self._put_open(open_session(record, conversation, now), now)
            elif session_id in self.open:
                self._drop_open(session_id)
        self._packed.set(newer, fresh)
        self._unsettled.update(added)
        return changed

    def _pack(self, records: Sequence[SessionRecord]) -> Iterator[int]:
        """Yield for each session its contribution, and above that the fingerprint of its usage."""
        sources, reasons = self._sources, self._reasons
        for record, used in zip(records, fingerprints(records), strict=True):
            row, (_, active, newest, _), _ = record
            flags, ended_at = row.is_open, row.ended_at
            if row.emptied and record.is_emptied:
                yield used << _CONTRIBUTION_BITS | _EMPTIED
                continue
            if ended_at is not None and newest is not None and newest > ended_at:
                flags |= _IS_WRITTEN_AFTER_END
            if active > _ACTIVE_MAX:
                active = _ACTIVE_MAX
            words = reasons[row.end_reason] << 8 | sources[row.source]
            yield used << _CONTRIBUTION_BITS | active << 18 | words << 2 | flags

    def drop(self, session_id: str) -> None:
        """Forget a session that is no longer in the database."""
        packed = self._packed.pop(hash(session_id))
        if packed is not None:
            self._unsettled[packed & _CONTRIBUTION_MASK] -= 1
        if session_id in self.open:
            self._drop_open(session_id)

    @property
    def open_left_out(self) -> int:
        """Return how many open sessions are counted but not kept."""
        self._apply_changes()
        return sum(self._open_by_source.values()) - len(self.open)

    def keep_only(self, seen: array[int]) -> None:
        """Forget all sessions but those with these id hashes: a pass has seen every session."""
        self._packed.pack()
        if len(seen) == len(self._packed):
            return  # each was seen once
        keys = set(seen)
        for key in [key for key in self._packed if key not in keys]:
            packed = self._packed.pop(key) or 0
            self._unsettled[packed & _CONTRIBUTION_MASK] -= 1
        gone = [session_id for session_id in self.open if hash(session_id) not in keys]
        for session_id in gone:
            self._drop_open(session_id)

    def _put_open(self, session: OpenSession, now: float) -> None:
        before = self.open.get(session.id)
        if before == session:
            return
        self.open[session.id] = session
        if not session.clocks_sane:
            self._protected_ids.add(session.id)
        elif before is not None:
            self._protected_ids.discard(session.id)
        if session.last_activity_at >= now - _RECENT_SECONDS:
            self._recent_ids.add(session.id)
        self._replace(before, session)

    def _drop_open(self, session_id: str) -> None:
        self._recent_ids.discard(session_id)
        self._protected_ids.discard(session_id)
        self.reopened.discard(session_id)
        self._replace(self.open.pop(session_id), None)

    def _replace(self, before: OpenSession | None, after: OpenSession | None) -> None:
        """Update the figures over all open sessions, where that is cheap; else drop them."""
        self._summary = None
        if self._activities is not None:
            if before is not None:
                del self._activities[bisect_left(self._activities, before.last_activity_at)]
            if after is not None:
                insort(self._activities, after.last_activity_at)
        if self._extremes is not None and before is not None and self._extremes.depend_on(before):
            self._extremes = None
        if self._extremes is not None and after is not None:
            self._extremes = self._extremes.joined_by(after)

    def recently_active(self, now: float) -> set[str]:
        """Return the open sessions active in the last minutes, without reading the others."""
        since = now - _RECENT_SECONDS
        self._recent_ids = {
            each for each in self._recent_ids if self.open[each].last_activity_at >= since
        }
        return self._recent_ids

    def _apply_changes(self) -> None:
        """Update the sums: add or subtract the number of sessions of each contribution."""
        if not self._unsettled:
            return
        self._summary = None
        for contribution, sessions in self._unsettled.items():
            if contribution == _EMPTIED:
                continue
            source, reason = contribution >> 2 & 0xFF, contribution >> 10 & 0xFF
            active = contribution >> 18
            self._sizes[source, active] += sessions
            if contribution & _IS_OPEN:
                self._open_by_source[source] += sessions
                self._open_sizes[active] += sessions
            else:
                self._ended[source, reason] += sessions
                self._ended_sizes[active] += sessions
                if contribution & _IS_WRITTEN_AFTER_END:
                    self._written_after_end[reason] += sessions
        self._unsettled.clear()

    def summary(
        self, now: float, *, trivial_max_messages: int, marathon_max: int, marathon_near: float
    ) -> SessionSummary:
        """Return the figures that metrics show, as of `now`."""
        self._apply_changes()
        limits = (trivial_max_messages, marathon_max, marathon_near)
        if self._summary is None or self._summary[0] != limits:
            self._summary = (limits, self._sum_up(*limits))
        idle_buckets, idle_sum = self._idle(now)
        return structs.replace(
            self._summary[1],
            open_idle_buckets=idle_buckets,
            open_idle_sum_seconds=idle_sum,
            unreadable=self.unreadable,
            open_left_out=self.open_left_out,
        )

    def _sum_up(
        self, trivial_max_messages: int, marathon_max: int, marathon_near: float
    ) -> SessionSummary:
        """Return all figures that do not change with time alone."""
        sources, reasons = self._sources.words, self._reasons.words
        near = marathon_near * marathon_max
        if self._extremes is None:
            self._extremes = _Extremes.of(self.open.values())
        return SessionSummary(
            open_by_source={sources[s]: n for s, n in _positive(self._open_by_source)},
            ended=self._ended_counts(),
            messages=list(self._histograms()),
            open_idle_buckets=[],
            open_idle_sum_seconds=0.0,
            empty=self._ended_sizes[0],
            trivial=sum(n for a, n in self._ended_sizes.items() if 1 <= a <= trivial_max_messages),
            marathon_near=sum(n for a, n in self._open_sizes.items() if near <= a <= marathon_max),
            marathon_over=sum(n for a, n in self._open_sizes.items() if a > marathon_max),
            messages_max=max((a for (_, a), n in _positive(self._sizes)), default=0),
            open_oldest_started_at=self._extremes.oldest,
            tool_error_streak_max=self._extremes.errors,
            tool_repeat_streak_max=self._extremes.repeats,
            written_after_end={reasons[r]: n for r, n in _positive(self._written_after_end)},
        )

    def _ended_counts(self) -> list[EndedCount]:
        """Return the most frequent pairs of source and reason; all others are one entry."""
        most = sorted(_positive(self._ended), key=lambda pair: -pair[1])
        rest = sum(sessions for _, sessions in most[_ENDED_PAIRS_MAX - 1 :])
        sources, reasons = self._sources.words, self._reasons.words
        counts = [
            EndedCount(sources[source], reasons[reason], sessions)
            for (source, reason), sessions in most[: _ENDED_PAIRS_MAX - 1]
        ]
        return [*counts, EndedCount(OTHER, OTHER, rest)] if rest else counts

    def _histograms(self) -> Iterator[MessageHistogram]:
        by_source: dict[int, tuple[list[int], int]] = {}
        for (source, active), sessions in _positive(self._sizes):
            buckets, total = by_source.get(source, ([0] * (len(MESSAGE_BUCKETS) + 1), 0))
            buckets[bisect_left(MESSAGE_BUCKETS, active)] += sessions
            by_source[source] = (buckets, total + active * sessions)
        for source, (buckets, total) in by_source.items():
            yield MessageHistogram(self._sources.words[source], buckets, total)

    def next_future(self, now: float) -> float | None:
        """Return when the first open session is no longer active in the future; None if none is."""
        times = (self.open[each].last_activity_at for each in self._protected_ids)
        return min((each for each in times if each > now), default=None)

    def _idle(self, now: float) -> tuple[list[int], float]:
        """Return open sessions by idle time, in buckets; cheap enough for every scan."""
        if self._activities is None:
            self._activities = sorted(session.last_activity_at for session in self.open.values())
        unknown = bisect_right(self._activities, 0.0)  # without a time: not counted
        edges = [bisect_left(self._activities, now - edge, unknown) for edge in IDLE_BUCKETS]
        bounds = [len(self._activities), *edges, unknown]
        buckets = [newer - older for newer, older in pairwise(bounds)]
        past = self._activities[unknown : bisect_left(self._activities, now, unknown)]
        return buckets, len(past) * now - sum(past)


def _positive(counter: Mapping[_K, int]) -> list[tuple[_K, int]]:
    return [(key, n) for key, n in counter.items() if n > 0]


def open_session(record: SessionRecord, conversation: Conversation, now: float) -> OpenSession:
    """Return an open session from its row and its messages."""
    row, messages, _ = record
    started_at, newest, beat_at = row.started_at, messages.newest, row.last_heartbeat_at
    latest = max(started_at or 0.0, newest or 0.0, row.last_activity_at or 0.0, beat_at or 0.0)
    sane = (
        row.intact == 1
        and started_at is not None
        and (newest is not None or messages.rows == 0)
        and 0 < latest <= now + _FUTURE_TOLERANCE_SECONDS
    )
    holds = _NO_HOLDS
    if row.handoff_state in HANDED_OFF:
        holds = [Hold.HANDOFF]
    if row.pinned:
        holds = [*holds, Hold.PINNED]
    return OpenSession(
        id=row.id,
        source=intern(row.source),
        started_at=started_at or 0.0,
        last_activity_at=latest,
        clocks_sane=sane,
        messages=messages.active,
        rows=messages.rows,
        turn=conversation.turn,
        holds=holds,
        parent_id=row.parent_id,
        last_heartbeat_at=beat_at,
        tool_error_streak=conversation.tool_error_streak,
        tool_repeat_streak=conversation.tool_repeat_streak,
        tokens=row.input + row.output + row.cache_read + row.cache_write + row.reasoning,
        is_subagent=row.is_subagent == 1,
    )


def usage_of(record: SessionRecord, copied: int) -> SessionUsage:
    """Return a session's usage, in the form that the state store counts."""
    row, messages, _ = record
    return SessionUsage(
        key=session_key(row.id),
        source=row.source,
        active_rows=messages.active,
        rows=messages.rows,
        above_watermark=messages.above_watermark,
        copied=copied,
        tool_calls=row.tool_calls,
        api_calls=row.api_calls,
        models=models_of(record),
    )


def with_holds(session: OpenSession, holds: list[Hold]) -> list[Hold]:
    """Return the session's own holds and those from other tables, each once."""
    if not session.holds:
        return holds  # the same list for many sessions
    return list(dict.fromkeys((*session.holds, *holds)))
