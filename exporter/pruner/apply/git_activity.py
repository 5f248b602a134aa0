"""Does git work in a repository now? By its locks and its running processes.

Hermes ends every git after at most three minutes, so a lock from a day ago belongs to a git that
was killed. It must not protect a dead repository for ever.
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
    """True if git may still hold it; also if its time is in the future."""
    return now - found.st_mtime < LOCK_AGE_SECONDS


def refuse_if_git_works_in(folder: int, owner: int, proc: str = "/proc") -> None:
    """Raise if a running git has its working directory, open files or repository in this folder.

    Of processes that we may not inspect only the owner's count: files of another user's git would
    have that user as their owner, and are refused for that.
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
                raise SkipError(f"git process {pid} works in it")
        except PermissionError as error:
            if uid == owner:
                raise SkipError(f"git process {pid} may work in it") from error
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
    said = _strings(f"{place}/environ") + _strings(f"{place}/cmdline")
    named = [each.partition(b"=")[2] for each in said if each.startswith(_GIT_DIRS)]
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
