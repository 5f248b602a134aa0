"""Inspect a directory that may be a Hermes home. Only `profiles` in it is opened.

A worker with the agent's own privileges runs this (`exporter.workers.path_probe`), because only
these privileges allow it to see every user's directory. It does not follow the directory if it is
a symlink. Another module accepts or refuses the home (`exporter.discovery.homes`).
"""

from __future__ import annotations

import os
import re
import stat
from typing import Annotated, Final

from msgspec import Meta, Struct

from exporter.hermes.small_files import file_identity
from exporter.snapshot import FileIdentity, Text

PROFILE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_PROFILES_MAX: Final = 64
_PARTS: Final = ("state.db", "state.db-wal", "state.db-shm", "sessions", "checkpoints")
_MARKS: Final = (*_PARTS, "config.yaml", "profiles", "logs", "cron", "gateway.pid", ".env")
"""A directory with none of these is a home only if the operator named it."""


class Inspection(Struct, frozen=True):
    """What a directory looks like from outside."""

    exists: bool
    is_directory: bool = False
    """True for a real directory; False for a symlink to one."""
    link_target: Text = ""
    """The target of the path if it is a symlink; it is not followed."""
    identity: FileIdentity | None = None
    owner: int = -1
    resolved: Annotated[str, Meta(max_length=4096)] = ""
    """The path without symlinks, so that two paths to one home give one home."""
    database: FileIdentity | None = None
    looks_like_home: bool = False
    foreign_part: Text = ""
    """A part that does not belong to the home's owner, or is a symlink."""
    unsafe_ancestor: Text = ""
    """A directory above the home that lets another user replace it."""
    unreadable: Text = ""
    profiles: Annotated[list[str], Meta(max_length=_PROFILES_MAX)] = []


def inspect(path: str) -> Inspection:
    """Inspect one path; never raise."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return Inspection(exists=False)
    except OSError as error:
        return Inspection(exists=True, unreadable=f"{path}: {error.strerror}"[:300])
    if not stat.S_ISDIR(found.st_mode):
        target = _link_target(path) if stat.S_ISLNK(found.st_mode) else ""
        return Inspection(
            exists=True, is_directory=False, owner=found.st_uid, link_target=target[:300]
        )
    try:
        return Inspection(
            exists=True,
            is_directory=True,
            identity=FileIdentity(found.st_dev, found.st_ino),
            owner=found.st_uid,
            resolved=os.path.realpath(path),
            database=file_identity(os.path.join(path, "state.db")),
            looks_like_home=any(os.path.lexists(os.path.join(path, mark)) for mark in _MARKS),
            foreign_part=_foreign_part(path, found.st_uid),
            unsafe_ancestor=_unsafe_ancestor(path, found.st_uid),
            unreadable=_unreadable(path),
            profiles=_profiles(path, found.st_uid),
        )
    except OSError as error:
        return Inspection(
            exists=True,
            is_directory=True,
            owner=found.st_uid,
            unreadable=f"{path}: {error.strerror}"[:300],
        )


def _link_target(path: str) -> str:
    try:
        return os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    except OSError:
        return ""


def _unreadable(path: str) -> str:
    return "" if os.access(path, os.R_OK | os.X_OK) else f"{path}: permission denied"[:300]


def _foreign_part(path: str, owner: int) -> str:
    for part in _PARTS:
        try:
            found = os.lstat(os.path.join(path, part))
        except OSError:
            continue
        if stat.S_ISLNK(found.st_mode):
            return f"{part} is a symlink, and symlinks are not followed"
        if found.st_uid != owner:
            return f"{part} belongs to uid {found.st_uid}, not to the home's owner (uid {owner})"
    return ""


def _unsafe_ancestor(path: str, owner: int) -> str:
    """Return the first directory above the path that others may change.

    Both the path as written and the path without symlinks are checked.
    """
    for start in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):
        ancestor = start
        while ancestor != os.path.dirname(ancestor):
            ancestor = os.path.dirname(ancestor)
            found = os.lstat(ancestor)
            if found.st_uid not in (0, owner):
                return f"{ancestor} belongs to uid {found.st_uid}"[:300]
            if not stat.S_ISLNK(found.st_mode) and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return f"{ancestor} is writable by others"[:300]
    return ""


def _profiles(path: str, owner: int) -> list[str]:
    """Return the names in the home's `profiles`.

    A symlink is not followed: it could make us list a folder that the home's owner may not list.
    """
    names: list[str] = []
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(os.path.join(path, "profiles"), flags)
    except OSError:
        return []
    try:
        if os.fstat(descriptor).st_uid == owner:
            with os.scandir(descriptor) as entries:
                names.extend(
                    entry.name
                    for entry in entries
                    if PROFILE_NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
                )
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return sorted(names)[:_PROFILES_MAX]
