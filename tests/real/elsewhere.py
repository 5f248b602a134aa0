"""Running something where the agent does not look at first: as another user, in a container."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.real.hermes import REPOSITORY

IN_PID_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def in_container(home: Path, inside: Path) -> list[str]:
    """What runs a command as a container does: it sees its own processes, and the home elsewhere.

    `inside` is where the home is for the command, which must be told so.
    """
    inside.mkdir()
    mount = f'mount --bind {shlex.quote(str(home))} {shlex.quote(str(inside))} && exec "$@"'
    namespaces = ["unshare", "--mount", "--uts", "--ipc", *IN_PID_NAMESPACE[1:]]
    return [*namespaces, "sh", "-c", mount, "-"]


def as_user(uid: int) -> list[str]:
    """What runs a command of this interpreter as an ordinary user.

    The interpreter may lie in a home that is closed to others; then the command sees a copy of the
    way to it that is open.
    """
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
    closed = next(_closed_folders(Path(sys.base_prefix)), None)
    if closed is None:
        return become
    keep = [Path(sys.base_prefix), *([REPOSITORY] if closed in REPOSITORY.parents else [])]
    lines = ["set -e", "keep=$(mktemp -d)"]
    for number, path in enumerate(keep):
        lines += [f"mkdir $keep/{number}", f"mount --bind {shlex.quote(str(path))} $keep/{number}"]
    lines.append(f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(closed))}")
    for number, path in enumerate(keep):
        lines += [f"mkdir -p {shlex.quote(str(path))}", f"mount --move $keep/{number} {path}"]
        lines.append(f"rmdir $keep/{number}")
    lines += ["rmdir $keep", 'exec "$@"']
    return ["unshare", "--mount", "sh", "-c", "\n".join(lines), "-", *become]


def _closed_folders(path: Path) -> Iterator[Path]:
    """Those on the way to a path that an ordinary user cannot pass, outermost first."""
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & 0o001:
            yield folder
