"""Which files of a home may be pruned, by name alone, and which never are.

A policy says which of these names it takes. `is_denied` overrules every policy and plan. Paths are
bytes, relative to the home.
"""

from __future__ import annotations

import re

from exporter.hermes.paths import (
    CHECKPOINTS,
    PROFILES,
    SESSIONS,
    STATE_DB,
    STORE,
    TRASH,
    classify_session_file,
    is_archive,
    is_project_name,
    is_shadow_repo,
)
from exporter.snapshot import DiskKind

_OBJECTS = re.compile(rb"(?P<repo>.+)/objects/(?:pack|[0-9a-f]{2})")
_TEMPORARY = re.compile(rb"tmp_(?:pack|idx|rev|bitmap|mtimes|obj)_[A-Za-z0-9]+")
_NOT_OURS = (TRASH, PROFILES)
"""The folder of journal and trash, and the profiles, which are homes of their own."""
_DATABASES = (STATE_DB, b"." + STATE_DB)
"""Copies too: they may be the only way to recover."""
_ROUTING = b"sessions.json"


def is_denied(path: bytes) -> bool:
    """True if no policy may ever take a file of this path.

    A name does not show links, mounts and other owners' files; the removers refuse those.
    """
    parts = path.split(b"/")
    if any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
        return True  # it may lead out of the home
    if len(parts) == 1 or parts[0] in _NOT_OURS:
        return True
    if parts[0] == SESSIONS:
        return not is_session_file(path)
    if parts[0] == CHECKPOINTS:
        return not is_temporary_object(path)
    return any(part.startswith(_DATABASES) or part == _ROUTING for part in parts)


def is_session_file(path: bytes) -> bool:
    """True for a transcript or a request dump."""
    return _session_file_kind(path) in (DiskKind.TRANSCRIPTS, DiskKind.REQUEST_DUMPS)


def is_request_dump(path: bytes) -> bool:
    return _session_file_kind(path) is DiskKind.REQUEST_DUMPS


def _session_file_kind(path: bytes) -> DiskKind | None:
    folder, _, name = path.rpartition(b"/")
    return classify_session_file(name, False) if folder == SESSIONS else None


def is_temporary_object(path: bytes) -> bool:
    """True if a killed git left this: a half-written pack or object."""
    folder, _, name = path.rpartition(b"/")
    place = _OBJECTS.fullmatch(folder)
    if place is None or _TEMPORARY.fullmatch(name) is None:
        return False
    repo = place["repo"]
    return repo == STORE or is_shadow_repo(*_split(repo))


def is_prunable_repo(path: bytes) -> bool:
    """True for a shadow repository of Hermes before 0.13, and for a whole archive of them."""
    return is_archive(path) or is_shadow_repo(*_split(path))


def is_prunable_project(name: bytes) -> bool:
    """True if this could be the name of a project of the store."""
    return is_project_name(name)


def project_files(name: str) -> tuple[str, ...]:
    """The files in the store that belong to one project alone; not all of them need be there."""
    return (f"projects/{name}.json", f"indexes/{name}", f"ledgers/{name}.json")


def project_locks(name: str) -> tuple[str, ...]:
    """Return the lock files that exist while git works on this project or on all of them."""
    return (
        f"indexes/{name}.lock",
        f"refs/hermes/{name}.lock",
        "packed-refs.lock",
        "config.lock",
        "HEAD.lock",
        "index.lock",
        "gc.pid",
        "gc.pid.lock",
    )


def _split(path: bytes) -> tuple[bytes, bytes]:
    folder, _, name = path.rpartition(b"/")
    return folder, name
