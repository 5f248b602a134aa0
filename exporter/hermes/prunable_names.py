"""Which names in a home the pruner may ever take, by name alone; everything else is left alone.

The last word on names, whatever a plan says. Paths are bytes, relative to the home.
"""

from __future__ import annotations

import re

from exporter.hermes.paths import (
    SESSIONS,
    STORE,
    classify_session_file,
    is_archive,
    is_project_name,
    is_shadow_repo,
)
from exporter.snapshot import DiskKind

_OBJECTS = re.compile(rb"(?P<repo>.+)/objects/(?:pack|[0-9a-f]{2})")
_TEMPORARY = re.compile(rb"tmp_(?:pack|idx|rev|bitmap|mtimes|obj)_[A-Za-z0-9]+")
_TAKEN_KINDS = (DiskKind.TRANSCRIPTS, DiskKind.REQUEST_DUMPS)


def is_prunable_file(path: bytes) -> bool:
    """Whether this is a transcript, a request dump or a leftover of a killed git."""
    folder, _, name = path.rpartition(b"/")
    if folder == SESSIONS:
        return classify_session_file(name, False) in _TAKEN_KINDS
    return is_temporary_object(path)


def is_temporary_object(path: bytes) -> bool:
    """Whether git left this behind when it was killed: a half-written pack or object."""
    folder, _, name = path.rpartition(b"/")
    place = _OBJECTS.fullmatch(folder)
    if place is None or _TEMPORARY.fullmatch(name) is None:
        return False
    repo = place["repo"]
    return repo == STORE or is_shadow_repo(*_split(repo))


def is_prunable_repo(path: bytes) -> bool:
    """Whether this is a shadow repository of before 0.13, or a whole archive of such."""
    return is_archive(path) or is_shadow_repo(*_split(path))


def is_prunable_project(name: bytes) -> bool:
    """Whether this could be the name of a project of the store."""
    return is_project_name(name)


def project_files(name: str) -> tuple[str, ...]:
    """The files in the store that belong to one project alone; not all of them need be there."""
    return (f"projects/{name}.json", f"indexes/{name}", f"ledgers/{name}.json")


def project_locks(name: str) -> tuple[str, ...]:
    """What lies in the store while git works on this project or on all of them."""
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
