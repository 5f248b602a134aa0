"""Whether git is at work in a repository just now: its locks, and its living processes.

Hermes ends every git after three minutes at the latest, so a lock of a day ago was left by one that
was killed; it would keep a dead repository for ever.
"""

from __future__ import annotations

import os
from typing import Final

from exporter.pruner.apply.home_folder import SkipError

LOCK_AGE_SECONDS: Final = 86_400.0
_STRINGS_BYTES: Final = 256 * 1024
_GIT_DIRS: Final = (b"GIT_DIR=", b"--git-dir=")


def is_lock(name: bytes) -> bool:
    return name.endswith(b".lock") or name == b"gc.pid"


def is_fresh_lock(found: os.stat_result, now: float) -> bool:
    """Whether it may be held; a time in the future speaks for that."""
    return now - found.st_mtime < LOCK_AGE_SECONDS


def refuse_if_git_works_in(folder: int, owner: int, proc: str = "/proc") -> None:
    """Raise if a living git has its place, its files or its repository at or below this folder.

    Of processes that are closed to us only the owner's own count: what another user's git had
    written there would be that user's, and is found by that.
    """
    try:
        path = os.fsencode(os.readlink(f"{proc}/self/fd/{folder}"))
        pids = [name for name in os.listdir(proc) if name.isdecimal()]
    except OSError:
        return  # a system without /proc: locks are all there is
    for pid in pids:
        place = f"{proc}/{pid}"
        try:
            if not _is_git(place):
                continue
            uid = os.stat(place).st_uid
        except OSError:
            continue
        try:
            if _works_in(place, path):
                raise SkipError(f"git process {pid} is at work in it")
        except PermissionError as error:
            if uid == owner:
                raise SkipError(f"git process {pid} may be at work in it") from error
        except OSError:
            continue  # it has ended


def _is_git(place: str) -> bool:
    descriptor = os.open(f"{place}/comm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 16).startswith(b"git")
    finally:
        os.close(descriptor)


def _works_in(place: str, path: bytes) -> bool:
    if _is_below(os.fsencode(os.readlink(f"{place}/cwd")), path):
        return True
    told = _strings(f"{place}/environ") + _strings(f"{place}/cmdline")
    named = [each.partition(b"=")[2] for each in told if each.startswith(_GIT_DIRS)]
    if any(_is_below(os.path.realpath(each), path) for each in named):
        return True
    return any(
        _is_below(os.fsencode(os.readlink(f"{place}/fd/{each}")), path)
        for each in os.listdir(f"{place}/fd")
    )


def _strings(file: str) -> list[bytes]:
    with open(file, "rb") as opened:
        return opened.read(_STRINGS_BYTES).split(b"\0")


def _is_below(place: bytes, folder: bytes) -> bool:
    return place == folder or place.startswith(folder + b"/")
