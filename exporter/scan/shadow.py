"""Reading one shadow repository, whole or by trusting its loose objects.

Git replaces `index` in the repository's own folder with every snapshot, so that folder's times
tell whether to read it at all. Reading it again regardless, to find what they do not tell, is made
cheaper: loose objects never change, so while no `objects/xx` folder changed they need no look.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct, structs

from exporter.hermes.checkpoints import is_repository, read_workdir
from exporter.scan.moment import Moment, Seen, seen
from exporter.scan.walk import Tally, descend

_OBJECTS: Final = b"objects/"
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RepoReading(Struct, gc=False):
    """What one repository held when it was read."""

    seen: Seen
    settled: bool
    rest: Tally
    """All but the loose objects; the folders they are in are counted here."""
    loose: Tally
    fan: int
    """The sum of the change times of all `objects/xx`; 0 if they are too young to be trusted."""
    workdir: bytes | None
    is_repository: bool


def read_repo(path: bytes, moment: Moment, trusted: RepoReading | None) -> RepoReading | None:
    """Read the repository at `path`, with the objects of `trusted` if unchanged; None if gone.

    It is read from inside: short paths are a tenth cheaper, and a rename meanwhile does no harm.
    """
    try:
        descriptor = os.open(path, _OPEN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _closed_repo(path)
    try:
        found = os.fstat(descriptor)
        if found.st_dev != moment.device:
            return None
        os.fchdir(descriptor)
    except OSError:
        return _closed_repo(path)
    finally:
        os.close(descriptor)
    try:
        return _read_inside(found, moment, trusted)
    finally:
        os.fchdir(moment.home)


def _read_inside(found: os.stat_result, moment: Moment, trusted: RepoReading | None) -> RepoReading:
    held: dict[bytes, int] = {}
    rest = descend([b""], moment.device, _OBJECTS, held)
    rest.add_folder(found)
    is_settled = bool(held) and moment.is_settled(max(held.values()))
    fan = sum(held.values()) if is_settled else 0
    if trusted is not None and fan and fan == trusted.fan:
        settled = moment.is_settled(found.st_ctime_ns)
        return structs.replace(trusted, seen=seen(found), settled=settled, rest=rest)
    workdir = read_workdir(b"")
    return RepoReading(
        seen=seen(found),
        settled=moment.is_settled(found.st_ctime_ns),
        rest=rest,
        loose=descend(held, moment.device),
        fan=fan,
        workdir=workdir,
        is_repository=is_repository(b"", workdir),
    )


def _closed_repo(path: bytes) -> RepoReading | None:
    """A repository that cannot be entered: its folder counts, and so does the fact."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    rest = Tally(unreadable=1)
    rest.add_folder(found)
    return RepoReading(
        seen=seen(found),
        settled=False,
        rest=rest,
        loose=Tally(),
        fan=0,
        workdir=None,
        is_repository=False,
    )
