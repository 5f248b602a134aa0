"""The layout of a home: the kind of each file and folder, by its name alone.

Names are bytes, as the kernel gives them. Hermes lets clients choose session ids, so a name may
hold newlines and need not be UTF-8. Paths here are relative to the home; `b""` is the home itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from exporter.snapshot import DiskKind

STATE_DB = b"state.db"
SESSIONS = b"sessions"
CHECKPOINTS = b"checkpoints"
PROFILES = b"profiles"
STORE = b"checkpoints/store"
TRASH = b".hermes-exporter"

_STATE_SIDECARS = frozenset({b"state.db-wal", b"state.db-shm", b"state.db-journal"})
_FOLDERS = {
    SESSIONS: DiskKind.TRANSCRIPTS,
    CHECKPOINTS: DiskKind.CHECKPOINTS_STORE,
    b"logs": DiskKind.LOGS,
    b"cache": DiskKind.CACHE,
    b"cron": DiskKind.CRON,
    TRASH: DiskKind.TRASH,
}
# Old places of the parts of cache/. Hermes still uses an old folder that has content. The last
# three folders never moved.
_CACHES = frozenset(
    {
        b"audio_cache",
        b"browser_screenshots",
        b"delegation_cache",
        b"document_cache",
        b"image_cache",
        b"piper_voices_cache",
        b"temp_video_files",
        b"temp_vision_images",
        b"video_cache",
        b"web_cache",
        b"browser_recordings",
        b"images",
        b"pastes",
    }
)

_PROJECT = re.compile(rb"[0-9a-f]{16}")
_TRANSCRIPT_SUFFIXES = (b".json", b".jsonl")
_REQUEST_DUMP = re.compile(rb"request_dump_.+_.+\.json", re.DOTALL)
_ROUTING_MIRROR = b"sessions.json"
_DUMP_PREFIX = b"request_dump_"
_ARCHIVE_PREFIX = b"legacy-"

_STORE_PARTS = (b"indexes", b"projects", b"objects", b"objects/pack", b"refs", b"refs/hermes")
_ALONE = frozenset({b"", SESSIONS, CHECKPOINTS, PROFILES, STORE}) | {
    STORE + b"/" + part for part in _STORE_PARTS
}


Classify = Callable[[bytes, bool], DiskKind]
"""Takes a name, and True if it names a folder. Returns the kind."""


def classifier(folder: bytes) -> Classify | None:
    """Return the function that classifies a folder's entries, or None.

    None means that all entries have the folder's own kind.
    """
    return _CLASSIFIERS.get(folder)


def classify_entry(name: bytes, is_folder: bool) -> DiskKind:
    """Return the kind of a top-level entry of a home.

    A name counts only with the right file type. A folder called `state.db` or a symlink called
    `sessions` was not made by Hermes, so it is `other`. Copies of the database (malformed backups,
    state-snapshots, backups) are `other` too: they serve recovery and are not the database.
    """
    if is_folder:
        if name in _CACHES:
            return DiskKind.CACHE
        return _FOLDERS.get(name, DiskKind.OTHER)
    if name == STATE_DB:
        return DiskKind.STATE_DB
    if name in _STATE_SIDECARS:
        return DiskKind.STATE_WAL
    if name.endswith(b".log"):
        return DiskKind.LOGS
    return DiskKind.OTHER


def classify_session_file(name: bytes, is_folder: bool) -> DiskKind:
    """Return the kind of an entry of sessions/.

    Transcripts are `session_<id>.json`, `<id>.json` and `<id>.jsonl`, with any id. These are
    `other`: the routing mirror `sessions.json`, hidden leftovers of atomic writes, dumps without a
    time in their name, and folders (`saved/` holds files that the user asked for).
    """
    if is_folder or name == _ROUTING_MIRROR or name.startswith(b"."):
        return DiskKind.OTHER
    if name.startswith(_DUMP_PREFIX):
        matched = _REQUEST_DUMP.fullmatch(name)
        return DiskKind.REQUEST_DUMPS if matched else DiskKind.OTHER
    return DiskKind.TRANSCRIPTS if name.endswith(_TRANSCRIPT_SUFFIXES) else DiskKind.OTHER


def classify_checkpoint(name: bytes, is_folder: bool) -> DiskKind:
    """Return the kind of an entry of checkpoints/: legacy repository, archive or store.

    Everything that is neither a repository nor an archive counts as the store.
    """
    if is_folder and is_project_name(name):
        return DiskKind.CHECKPOINTS_LEGACY
    if is_folder and name.startswith(_ARCHIVE_PREFIX):
        return DiskKind.CHECKPOINTS_ARCHIVE
    return DiskKind.CHECKPOINTS_STORE


_CLASSIFIERS: Final[dict[bytes, Classify]] = {
    b"": classify_entry,
    SESSIONS: classify_session_file,
    CHECKPOINTS: classify_checkpoint,
}


def is_project_name(name: bytes) -> bool:
    """True if the name has 16 hex digits, like the hash of a working directory."""
    return _PROJECT.fullmatch(name) is not None


def is_shadow_repo(folder: bytes, name: bytes) -> bool:
    """True if a folder of this name is a whole git repository, made before 0.13.

    Such repositories are in checkpoints/ itself and, after Hermes's migration, in the
    legacy-<time>/ folders of checkpoints/.
    """
    if not is_project_name(name):
        return False
    return folder == CHECKPOINTS or is_archive(folder)


def is_archive(folder: bytes) -> bool:
    """True if this is a checkpoints/legacy-<time>/ folder."""
    parent, _, name = folder.rpartition(b"/")
    return parent == CHECKPOINTS and name.startswith(_ARCHIVE_PREFIX)


def stands_alone(folder: bytes) -> bool:
    """True if this folder is never counted together with others.

    Either its entries are of several kinds, or it changes with every snapshot that Hermes makes.
    """
    return folder in _ALONE or is_archive(folder)
