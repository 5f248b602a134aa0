"""Reading one shadow repository, whole or by trusting what git never changes in place.

Git replaces `index` in the repository's own folder with every snapshot, so that folder's times
tell whether to read it at all. Reading it again regardless, to find what they do not tell, is made
cheaper: only logs grow in place, all else git replaces. So while none of the folders without
subfolders changed, most of all `objects/xx`, the files in them need no look.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct, structs

from exporter.hermes.checkpoints import is_repository, prefetch_workdir, read_workdir
from exporter.scan.moment import Moment, Seen, seen
from exporter.scan.walk import Tally, descend

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RepoReading(Struct, gc=False):
    """What one repository held when it was read."""

    seen: Seen
    settled: bool
    rest: Tally
    """All but what is in `leaves`; those folders themselves are counted here."""
    leaves: Tally
    """What is in folders without subfolders, except those of logs."""
    leaves_changed: int
    """The sum of the change times of those folders; 0 if they are too young to be trusted."""
    workdir: bytes | None
    is_repository: bool


def read_repo(path: bytes, moment: Moment, trusted: RepoReading | None) -> RepoReading | None:
    """Read the repository at `path`, with the leaves of `trusted` if unchanged; None if gone.

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
    if trusted is None:
        prefetch_workdir(b"")
    leaves: dict[bytes, int] = {}
    rest = descend([b""], moment.device, leaves, leafy=b"objects/", growing=b"logs/")
    rest.add_folder(found)
    is_settled = bool(leaves) and moment.is_settled(max(leaves.values()))
    changed = sum(leaves.values()) if is_settled else 0
    if trusted is not None and changed and changed == trusted.leaves_changed:
        settled = moment.is_settled(found.st_ctime_ns)
        return structs.replace(trusted, seen=seen(found), settled=settled, rest=rest)
    workdir = read_workdir(b"")
    return RepoReading(
        seen=seen(found),
        settled=moment.is_settled(found.st_ctime_ns),
        rest=rest,
        leaves=descend(leaves, moment.device),
        leaves_changed=changed,
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
        leaves=Tally(),
        leaves_changed=0,
        workdir=None,
        is_repository=False,
    )
