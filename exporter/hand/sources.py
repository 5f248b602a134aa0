"""A source that somebody names and no session has: probably a slip, and worth a word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from exporter.snapshot import Snapshot
from exporter.text import listed, nearest, quoted, visible

_LISTED_MAX: Final = 12
_KNOWN_MAX: Final = 64
"""As many as a snapshot tells of one home; with so many there may be more."""


def unknown_sources(wanted: Sequence[str], snapshots: Iterable[Snapshot | None]) -> list[str]:
    """A line for each wanted source that no session has, ended or open, in any home read."""
    summaries = [each.sessions for each in snapshots if each is not None]
    known: set[str] = set()
    for summary in summaries:
        if summary is None or len(summary.messages) >= _KNOWN_MAX:
            return []
        known |= {each.source for each in summary.messages}
    return list(_lines(dict.fromkeys(wanted), sorted(known))) if summaries else []


def _lines(wanted: Iterable[str], known: Sequence[str]) -> Iterator[str]:
    for source in wanted:
        if source in known:
            continue
        meant = nearest(source, known)
        if meant:
            fix = f", did you mean {quoted(meant)}?"
        elif known:
            fix = f"; there are {listed(map(visible, known[:_LISTED_MAX]), 'and')}"
        else:
            fix = "; there are no sessions"
        yield f"no session has source {quoted(source)}{fix}"
