"""Running the project as an ordinary user, in any place where it and Python are installed.

A test process is root, and its interpreter or checkout may lie below a folder that only root can
enter. In a mount namespace of its own such a folder is replaced by one that shows nothing else.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path

from tests.real.hermes import REPOSITORY


def as_user(uid: int) -> list[str]:
    """What to put before a command line so that it runs as this user, without any privilege."""
    needed = [Path(sys.base_prefix), Path(sys.prefix), REPOSITORY]
    closed = {top for path in needed if (top := _closed_folder_above(path.resolve()))}
    script = ["set -e", "mount --make-rprivate /"]
    hidden = [path for path in needed if any(path.resolve().is_relative_to(top) for top in closed)]
    for number, path in enumerate(hidden):
        script.append(f'mkdir "$keep/{number}" && mount --bind {_quoted(path)} "$keep/{number}"')
    script += [f"mount -t tmpfs -o mode=755 none {_quoted(top)}" for top in closed]
    for number, path in enumerate(hidden):
        target = _quoted(path.resolve())
        script.append(f'mkdir -p {target} && mount --bind "$keep/{number}" {target}')
    script.append(f'exec setpriv --reuid={uid} --regid={uid} --clear-groups "$@"')
    if hidden:
        script[2:2] = ["keep=/mnt", "mount -t tmpfs -o mode=755 none /mnt"]
    return ["unshare", "-m", "sh", "-c", "\n".join(script), "-"]


def _closed_folder_above(path: Path) -> Path | None:
    """The topmost folder on the way there that others may not enter."""
    for folder in reversed(path.parents):
        if not os.stat(folder).st_mode & stat.S_IXOTH:
            return folder
    return None


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
