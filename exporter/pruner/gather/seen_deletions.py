"""Which transcripts and dumps lost their row by a deletion that the agent saw.

At every look the agent remembers which files had a row, and what the database is known by. A file
whose row is gone at the next look was deleted if the database is still the same one; otherwise the
row may have gone with a restored backup, and the file may be the last copy of a conversation.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from exporter.hermes.continuity import text_key
from exporter.pruner.decide.inventory import Deletion, SessionFile
from exporter.pruner.models import DELETED_MAX, ROWS_MAX, DeletionMemory, SeenDatabase

_PAIR: Final = struct.Struct(">QQ")
_TIMED: Final = struct.Struct(">Qd")


class DatabaseState(Struct, frozen=True):
    """What the database says at this look."""

    seen: SeenDatabase
    surviving: frozenset[int]
    """The anchors of the last look that are still there."""
    newest: Mapping[str, int]
    """A late message of each session that has files."""
    copied_at: float = 0.0
    """When a copy of the database was last put beside it, by a repair or a rescue."""


class RunEffects(Struct, frozen=True):
    """What our own runs did to sessions."""

    deleted: Mapping[str, float] = {}
    """Files of sessions that runs deleted, and when."""
    unsettled: frozenset[str] = frozenset()
    """Files of sessions that an unfinished run may have deleted."""
    given_back: frozenset[str] = frozenset()
    """Sessions that an undo gave back: their rows are younger than their messages' numbers."""


def safe_up_to(before: SeenDatabase | None, look: DatabaseState) -> int:
    """Rows whose messages are no newer than this one were not lost by a restore; 0: any may be."""
    now = look.seen
    if before is None or look.copied_at >= before.looked_at:
        return 0
    if (before.device, before.inode) != (now.device, now.inode):
        return 0
    content = before.content
    if now.content.sequence < content.sequence or now.content.schema != content.schema:
        return 0
    vouched = max(look.surviving, default=0)
    newer = {each.session for each in content.anchors if each.message > vouched}
    # One session may be the newest and have been deleted. Several that are gone together, and
    # nothing newer left, look like a database that was restored.
    return vouched if len(newer) <= 1 else 0


def find_deletions(
    memory: DeletionMemory,
    look: DatabaseState | None,
    files: Sequence[SessionFile],
    runs: RunEffects,
    now: float,
) -> tuple[tuple[SessionFile, ...], DeletionMemory]:
    """Tell of each file without a row whether that was deleted; the second is what to remember.

    Without a look, for the database cannot be read or is not there, nothing new is learnt.
    """
    deleted = {key: min(when, now) for key, when in _TIMED.iter_unpack(_whole(memory.deleted))}
    rows = dict(_PAIR.iter_unpack(_whole(memory.rows)))
    if look is not None:
        vouched = safe_up_to(memory.seen, look)
        gone = {text_key(file.name) for file in files if file.session_id is None}
        deleted |= {key: now for key in gone if 0 < rows.get(key, 0) <= vouched}
        deleted = {key: when for key, when in deleted.items() if key in gone}
        memory = DeletionMemory(
            seen=look.seen,
            rows=_pack_rows(files, look.newest, runs.given_back),
            deleted=_pack(_TIMED, sorted(deleted.items())[:DELETED_MAX]),
        )
    told = tuple(
        file if file.session_id is not None else _with_deletion(file, deleted, runs)
        for file in files
    )
    return told, memory


def _with_deletion(
    file: SessionFile, deleted: Mapping[int, float], runs: RunEffects
) -> SessionFile:
    seen_at = deleted.get(text_key(file.name))
    ours_at = runs.deleted.get(file.name)
    deletion = Deletion.UNPROVEN
    # What was written to since has something that the deleted session had not.
    if ours_at is not None and file.modified_at <= ours_at:
        deletion = Deletion.OURS
    elif file.name in runs.unsettled:
        deletion = Deletion.UNSETTLED
    elif seen_at is not None and file.modified_at <= seen_at:
        deletion = Deletion.SEEN
    return structs.replace(file, deletion=deletion)


def _pack_rows(
    files: Sequence[SessionFile], newest: Mapping[str, int], given_back: Collection[str]
) -> bytes:
    """The files with rows; where there are too many the oldest, which are deleted first."""
    rows = {
        text_key(file.name): newest[file.session_id]
        for file in files
        if file.session_id is not None
        if file.session_id in newest and file.session_id not in given_back
    }
    oldest = sorted(rows.items(), key=lambda each: (each[1], each[0]))
    return _pack(_PAIR, oldest[:ROWS_MAX])


def _pack(shape: struct.Struct, pairs: Sequence[tuple[int, float]]) -> bytes:
    return b"".join(shape.pack(*pair) for pair in pairs)


def _whole(packed: bytes) -> bytes:
    """Without what is left of a pair that was cut off; both kinds are of one size."""
    return packed[: len(packed) // _PAIR.size * _PAIR.size]
