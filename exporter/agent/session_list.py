"""The open sessions of a home, stored as compressed JSON: there may be tens of thousands.

There are two forms: complete for the command line, and public for HTTP. In the public form, an id
that Hermes did not make itself is shown as a hash, because a client may have put anything into it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from exporter.collectors.labels import LabelFamily, label_value
from exporter.hermes.session_files import is_own_id
from exporter.reaper.models import JudgedSession, Judgement, Verdict
from exporter.runs.models import Evidence
from exporter.snapshot import OpenSession

_BYTES_MAX: Final = 4 * 1024 * 1024
"""Compressed size. Tens of thousands of sessions fit; more sessions are only counted."""


def public_id(session_id: str) -> str:
    """Return the id as HTTP may show it."""
    if is_own_id(session_id):
        return session_id
    digest = sha256(session_id.encode(errors="surrogatepass")).hexdigest()
    return f"sha256:{digest[:16]}"


class SessionList:
    """One home's open sessions, from the last complete list."""

    def __init__(self) -> None:
        self._pages: list[bytes] = []
        self._next: list[bytes] | None = None
        """The list that is being added to; `close` puts it in the place of `_pages`."""
        self._next_bytes = self._next_left_out = 0
        self.left_out = 0
        """Open sessions missing from the list because it would be too long."""
        self.revision = 0
        """Changes when another list replaces this one."""

    def add(self, sessions: Sequence[JudgedSession], *, first: bool) -> None:
        """Add a page of sessions; `first` begins a new list."""
        if first or self._next is None:
            self.clear()
        # After one page was left out, all are: a later, smaller page must not fill the gap.
        if self._next is None or self._next_left_out:
            self._next_left_out += len(sessions)
            return
        page = zlib.compress(msgspec.json.encode(list(sessions)), 1)
        if self._next_bytes + len(page) > _BYTES_MAX:
            self._next_left_out += len(sessions)
            return
        self._next.append(page)
        self._next_bytes += len(page)

    def clear(self) -> None:
        """Begin a new list; the one that is shown stays until `close`."""
        self._next = []
        self._next_bytes = self._next_left_out = 0

    def close(self) -> None:
        """Complete the list that was being added to; it replaces the previous one."""
        if self._next is not None and self._next != self._pages:
            self._pages = self._next
            self.revision += 1
        if self._next is not None:
            self.left_out = self._next_left_out
        self._next = None

    def sessions(self) -> Iterator[JudgedSession]:
        for page in self._pages:
            yield from msgspec.json.decode(zlib.decompress(page), type=list[JudgedSession])

    def rows(self, label: str, *, public: bool) -> Iterator[dict[str, Any]]:
        """Yield the sessions as `sessions --json` prints them; `public` as HTTP shows them."""
        for judged in self.sessions():
            yield session_row(label, judged.session, judged.verdict, judged.evidence, public=public)


def session_row(
    label: str,
    session: OpenSession,
    verdict: Verdict,
    evidence: Sequence[Evidence],
    *,
    public: bool = False,
) -> dict[str, Any]:
    """Return one session as `sessions --json` prints it; `public` as HTTP shows it."""
    return {
        "home": label,
        "id": public_id(session.id) if public else session.id,
        "source": label_value(LabelFamily.SOURCE, session.source) if public else session.source,
        "started_at": session.started_at or None,
        "last_activity_at": session.last_activity_at or None,
        "messages": session.messages,
        "tokens": session.tokens,
        "verdict": verdict.value,
        "evidence": [
            {"kind": each.kind, "says": each.says.value, "detail": each.detail} for each in evidence
        ],
    }


def explained_row(
    label: str, session: OpenSession, judgement: Judgement, *, public: bool = False
) -> dict[str, Any]:
    """Return one session with all evidence and rules, as `explain --json` prints it."""
    row = session_row(label, session, judgement.verdict, judgement.evidence, public=public)
    row["rules"] = [
        {"rule": each.rule, "holds": each.holds, "why": each.why} for each in judgement.rules
    ]
    return row
