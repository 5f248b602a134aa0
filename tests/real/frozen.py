"""A real filesystem that can be frozen: every write to it then waits until it is thawed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FreezableFilesystem:
    """An ext4 of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def freeze(self) -> None:
        subprocess.run(["fsfreeze", "--freeze", self._folder], check=True)

    def thaw(self) -> None:
        """Harmless where it is not frozen."""
        subprocess.run(["fsfreeze", "--unfreeze", self._folder], capture_output=True)


@contextmanager
def freezable_filesystem(image: Path, folder: Path) -> Iterator[FreezableFilesystem]:
    """Mounted at `folder`, kept in `image`; thawed and unmounted at the end."""
    with image.open("wb") as file:
        os.truncate(file.fileno(), 64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    filesystem = FreezableFilesystem(folder)
    try:
        yield filesystem
    finally:
        filesystem.thaw()
        subprocess.run(["umount", "--lazy", folder], check=True)


def is_waiting_for_disk(pid: int) -> bool:
    """Whether a thread of the process is held by the kernel and cannot be woken."""
    for status in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            if status.read_text().rpartition(")")[2].split()[0] == "D":
                return True
        except OSError:
            continue  # a thread that has ended
    return False
