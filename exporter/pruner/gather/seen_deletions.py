"""Finds transcripts and dumps whose session was deleted while the agent watched.

At every plan the agent remembers which files had a row, and what identifies the database. If a row
is gone at the next plan and the database is still the same one, the session was deleted. Otherwise
the row may be missing from a restored backup, and the file may be the last copy of a conversation.
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
    """What the database says now."""

    seen: SeenDatabase
    surviving: frozenset[int]
    """The anchors of the last plan that are still there; see `exporter.hermes.continuity`."""
    newest: Mapping[str, int]
    """The id of one of the last messages of each session that has files."""
    copied_at: float = 0.0
    """When a repair or rescue last made a copy of the database beside it."""


class RunEffects(Struct, frozen=True):
    """What our own runs did to sessions."""

    deleted: Mapping[str, float] = {}
    """When runs deleted the sessions of these files."""
    unsettled: frozenset[str] = frozenset()
    """Files of sessions that an unfinished run may have deleted."""
    given_back: frozenset[str] = frozenset()
    """Sessions that an undo restored: their rows are newer than their message ids suggest."""


def safe_up_to(before: SeenDatabase | None, state: DatabaseState) -> int:
    """Return an id: no message up to it can have been lost by restoring a backup. 0 for none."""
    now = state.seen
    if before is None or state.copied_at >= before.looked_at:
        return 0
    if (before.device, before.inode) != (now.device, now.inode):
        return 0
    content = before.content
    if now.content.sequence < content.sequence or now.content.schema != content.schema:
        return 0
    newest_safe = max(state.surviving, default=0)
    newer = {each.session for each in content.anchors if each.message > newest_safe}
    # If one session is gone, it may have been the newest and was deleted. If several are gone
    # together and nothing newer is left, the database was probably restored from a backup.
    return newest_safe if len(newer) <= 1 else 0


def find_deletions(
    memory: DeletionMemory,
    state: DatabaseState | None,
    files: Sequence[SessionFile],
    runs: RunEffects,
    now: float,
) -> tuple[tuple[SessionFile, ...], DeletionMemory]:
    """Return the files, each with what is known of its deleted row, and what to remember.

    `state` is None if the database is missing or cannot be read; then nothing new is known.
    """
    deleted = {key: min(when, now) for key, when in _TIMED.iter_unpack(_whole(memory.deleted))}
    rows = dict(_PAIR.iter_unpack(_whole(memory.rows)))
    if state is not None:
        newest_safe = safe_up_to(memory.seen, state)
        gone = {text_key(file.name) for file in files if file.session_id is None}
        deleted |= {key: now for key in gone if 0 < rows.get(key, 0) <= newest_safe}
        deleted = {key: when for key, when in deleted.items() if key in gone}
        memory = DeletionMemory(
            seen=state.seen,
            rows=_pack_rows(files, state.newest, runs.given_back),
            deleted=pack_deleted(deleted),
        )
    marked = tuple(
        file if file.session_id is not None else _with_deletion(file, deleted, runs)
        for file in files
    )
    return marked, memory


def _with_deletion(
    file: SessionFile, deleted: Mapping[int, float], runs: RunEffects
) -> SessionFile:
    seen_at = deleted.get(text_key(file.name))
    ours_at = runs.deleted.get(file.name)
    deletion = Deletion.UNPROVEN
    # A file that was written later has content that the deleted session did not have.
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
    """Pack the files that have rows. If there are too many, keep the oldest: they go first."""
    rows = {
        text_key(file.name): newest[file.session_id]
        for file in files
        if file.session_id is not None
        if file.session_id in newest and file.session_id not in given_back
    }
    oldest = sorted(rows.items(), key=lambda each: (each[1], each[0]))
    return _pack(_PAIR, oldest[:ROWS_MAX])


def pack_deleted(deleted: Mapping[int, float]) -> bytes:
    """Pack when the rows of these files were seen to be deleted; see `text_key` for the keys."""
    return _pack(_TIMED, sorted(deleted.items())[:DELETED_MAX])


def _pack(shape: struct.Struct, pairs: Sequence[tuple[int, float]]) -> bytes:
    return b"".join(shape.pack(*pair) for pair in pairs)


def _whole(packed: bytes) -> bytes:
    """Return it without an incomplete pair at its end; both kinds of pairs have the same size."""
    return packed[: len(packed) // _PAIR.size * _PAIR.size]
