"""The readings of homes that commands without an agent keep in the state directory.

One file for each home. The bytes come from a worker and go to the next worker of the same home
(`workers.kept_readings`); nothing else looks into them. Without them a command only takes longer,
so a file that cannot be read or written is no error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import Final

_FOLDER: Final = "readings"
_BYTES_MAX: Final = 16 * 1024 * 1024
_KEEP_SECONDS: Final = 90 * 86400.0
"""The readings of a home that no command looked at for so long are removed."""


class ReadingsFolder:
    """The kept readings of all homes that one state directory knows."""

    def __init__(
        self, state_dir: str, *, fresh: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        """`fresh`: everything is to be read anew, and then kept."""
        self._state_dir = state_dir
        self._folder = os.path.join(state_dir, _FOLDER)
        self._fresh = fresh
        self._clock = clock

    def load(self, home: str) -> bytes:
        """Return the readings of a home; none if there are none, or they cannot be read."""
        if self._fresh:
            return b""
        try:
            with open(self._path(home), "rb", opener=_open_private) as file:
                data = file.read(_BYTES_MAX + 1)
        except OSError:
            return b""
        return data if len(data) <= _BYTES_MAX else b""

    def save(self, home: str, data: bytes) -> None:
        """Replace the readings of a home, and remove those of homes that are gone for long."""
        path = self._path(home)
        unfinished = f"{path}.{os.getpid()}"
        with suppress(OSError):
            os.makedirs(self._state_dir, mode=0o700, exist_ok=True)
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            try:
                with open(unfinished, "wb", opener=_open_private) as file:
                    file.write(data)
                os.replace(unfinished, path)
            finally:
                with suppress(OSError):
                    os.unlink(unfinished)
            self._remove_old()

    def _path(self, home: str) -> str:
        return os.path.join(self._folder, sha256(os.fsencode(home)).hexdigest()[:16])

    def _remove_old(self) -> None:
        since = self._clock() - _KEEP_SECONDS
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_mtime < since:
                    os.unlink(entry.path)


def _open_private(path: str, flags: int) -> int:
    # O_NONBLOCK: root may use the state directory of a user, who may have put a FIFO here.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
