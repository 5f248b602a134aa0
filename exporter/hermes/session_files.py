"""The names of a session's files, and the session that a file name may belong to.

    session_<id>.json, <id>.json, <id>.jsonl     transcripts
    request_dump_<id>_<time>.json                the request to the model when a call failed

Clients may choose ids, so an id is never used as a pattern. A name is split once, and its middle is
compared with whole ids. Up to 0.17 the middle is the id itself. From 0.18 on, an id that is not fit
for a file name is written in another form, with a hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from exporter.hermes.paths import classify_session_file
from exporter.snapshot import DiskKind

_DUMP: Final = re.compile(r"request_dump_(.+)_\d{8}_\d{6}_\d{6}\.json", re.DOTALL)
_PREFIXED: Final = re.compile(r"session_(.+)\.json", re.DOTALL)
_PLAIN: Final = re.compile(r"(.+)\.jsonl?", re.DOTALL)
_UNSAFE: Final = re.compile(r"[^\w-]")
_SAFE_CHARACTERS: Final = 96
_SAFE_HASHED: Final = re.compile(r"[\w-]{1,96}_[0-9a-f]{12}")
_HASH_DIGITS: Final = 12


def safe_name(session_id: str) -> str:
    """Return the form in which Hermes from 0.18 on writes an id into a file name."""
    raw = session_id.strip()
    safe = _UNSAFE.sub("_", raw).strip("._")[:_SAFE_CHARACTERS] or "session"
    if raw and safe == raw:
        return safe
    digest = sha256(raw.encode("utf-8", errors="surrogatepass")).hexdigest()
    return f"{safe}_{digest[:_HASH_DIGITS]}"


class FileOwners:
    """Finds the session of the database that a file of sessions/ belongs to."""

    def __init__(self, session_ids: Iterable[str]) -> None:
        self._ids: dict[str, str] = {}
        for session_id in session_ids:
            self._ids[session_id] = session_id
            if not is_own_id(session_id):
                self._ids.setdefault(safe_name(session_id), session_id)

    def of(self, name: str) -> str | None:
        """Return the session's id; None if no session of the database has a file of this name."""
        found = (self._ids.get(middle) for middle in possible_ids(name))
        return next((session_id for session_id in found if session_id is not None), None)


def kind_of(name: str) -> DiskKind | None:
    """Return transcript, or request dump with a time in its name; None for files never touched."""
    kind = classify_session_file(name.encode(errors="surrogateescape"), False)
    if kind is DiskKind.TRANSCRIPTS:
        return kind
    return kind if kind is DiskKind.REQUEST_DUMPS and _DUMP.fullmatch(name) else None


def possible_ids(name: str) -> list[str]:
    """Return the possible ids in a name: `session_a.json` belongs to `a` or to `session_a`."""
    shapes = (_DUMP,) if name.startswith("request_dump_") else (_PREFIXED, _PLAIN)
    return [matched[1] for shape in shapes if (matched := shape.fullmatch(name)) is not None]


def is_surely_hermes(name: str) -> bool:
    """True if only Hermes would give a file this name.

    A user's own notes may be in sessions/ and end in `.json`. So a file counts as a leftover of a
    session only if Hermes made the id in its name, or the name carries Hermes's hash.
    """
    prefixed = name.startswith(("session_", "request_dump_"))
    return any(
        is_own_id(middle) or (prefixed and _SAFE_HASHED.fullmatch(middle) is not None)
        for middle in possible_ids(name)
    )


_OWN_SHAPES: Final = re.compile(
    r"\d{8}_\d{6}_[0-9a-f]{6,8}"
    r"|cron_[0-9a-zA-Z-]{1,64}_\d{8}_\d{6}"
    r"|api_\d{1,12}_[0-9a-f]{8}"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)


def is_own_id(session_id: str) -> bool:
    """True if Hermes made this id: then it holds no text of a user."""
    return _OWN_SHAPES.fullmatch(session_id) is not None
