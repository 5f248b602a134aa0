"""A real FUSE filesystem with one file in it, whose server can stop answering."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct("<IIQQIIII")
_LOOKUP, _FORGET, _GETATTR, _OPEN, _RELEASE, _FLUSH, _INIT = 1, 2, 3, 14, 18, 25, 26
_ROOT, _FILE = 1, 2
FILE_INODE: Final = 4242
_DETACH_AND_FORCE: Final = 3
_libc: Final = ctypes.CDLL(None, use_errno=True)


class StuckFilesystem:
    """Serves `state.db` until `stop_answering`; after that every access to it waits for ever."""

    def __init__(self, device: int, owner: int) -> None:
        self._device = device
        self._owner = owner
        self._answers = True
        threading.Thread(target=self._serve, daemon=True).start()

    def stop_answering(self) -> None:
        self._answers = False

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, 1 << 17)
            except OSError:
                return  # unmounted
            _, operation, unique, node, *_ = _HEADER.unpack_from(request)
            if operation == _FORGET or not self._answers:
                continue
            error, body = self._answer(operation, node, request[_HEADER.size :])
            head = struct.pack("<IiQ", 16 + len(body), -error, unique)
            os.write(self._device, head + body)

    def _answer(self, operation: int, node: int, body: bytes) -> tuple[int, bytes]:
        if operation == _INIT:
            return 0, struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, 0)
        if operation == _LOOKUP and body.rstrip(b"\0") == b"state.db":
            # Not cached: every stat has to ask again.
            return 0, struct.pack("<QQQQII", _FILE, 0, 0, 0, 0, 0) + self._attributes(_FILE)
        if operation == _GETATTR:
            return 0, struct.pack("<QII", 0, 0, 0) + self._attributes(node)
        if operation == _OPEN:
            return 0, struct.pack("<QII", 0, 0, 0)
        if operation in {_FLUSH, _RELEASE}:
            return 0, b""
        return (errno.ENOENT if operation == _LOOKUP else errno.ENOSYS), b""

    def _attributes(self, node: int) -> bytes:
        inode = FILE_INODE if node == _FILE else 1
        mode = stat.S_IFREG | 0o644 if node == _FILE else stat.S_IFDIR | 0o755
        return struct.pack(
            "<QQQQQQIIIIIIIIII",
            *(inode, 0, 0, 0, 0, 0, 0, 0, 0),
            *(mode, 1, self._owner, self._owner, 0, 4096, 0),
        )


@contextmanager
def stuck_filesystem(folder: Path, owner: int = 0) -> Iterator[StuckFilesystem]:
    """Mount it at `folder`, for `owner` alone, as a user's own FUSE mounts are."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={owner},group_id={owner}".encode()
    try:
        if _libc.mount(b"stuck", os.fsencode(folder), b"fuse", 0, options) != 0:
            raise OSError(ctypes.get_errno(), "cannot mount a FUSE filesystem")
        try:
            yield StuckFilesystem(device, owner)
        finally:
            _libc.umount2(os.fsencode(folder), _DETACH_AND_FORCE)
    finally:
        os.close(device)
