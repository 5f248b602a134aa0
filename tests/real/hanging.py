"""A filesystem that can stop answering: a read-only FUSE mount served from here, by hand.

It shows a folder as it is. While it hangs it takes requests and answers none, so that the
kernel holds the process that asked, and it cannot even be killed: as on a dead network mount.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

_MS_RDONLY: Final = 1
_MNT_FORCE: Final = 1
_MNT_DETACH: Final = 2

_HEADER: Final = struct.Struct("<IIQQIIII")
_ANSWER: Final = struct.Struct("<IiQ")
_ATTRIBUTES: Final = struct.Struct("<6Q10I")
_READING: Final = struct.Struct("<QQI")
_ENTRY: Final = struct.Struct("<QQII")


class Opcode(IntEnum):
    """What the kernel may ask; see linux/fuse.h."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    READLINK = 5
    OPEN = 14
    READ = 15
    STATFS = 17
    RELEASE = 18
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    ACCESS = 34
    INTERRUPT = 36
    BATCH_FORGET = 42


_WANT_NO_ANSWER: Final = (Opcode.FORGET, Opcode.INTERRUPT, Opcode.BATCH_FORGET)


class Request(NamedTuple):
    opcode: int
    unique: int
    node: int
    body: bytes


class HangingFilesystem:
    """The server of one mount."""

    def __init__(self, source: Path, device: int) -> None:
        self._device = device
        self._paths = [b"", os.fsencode(source)]
        self._nodes = {self._paths[1]: 1}
        self._lock = threading.Lock()
        self._hanging: frozenset[int] = frozenset()
        self._held: list[Request] = []
        self.asked_while_hanging = threading.Event()

    def hang(self, *opcodes: Opcode) -> None:
        """Answer nothing from now on, or none of these requests."""
        with self._lock:
            self._hanging = frozenset(opcodes or Opcode)
            self.asked_while_hanging.clear()

    def recover(self) -> None:
        """Answer everything that was asked meanwhile, and go on."""
        with self._lock:
            self._hanging = frozenset()
            for request in self._held:
                self._respond(request)
            self._held.clear()

    def serve(self) -> None:
        """Answer until the filesystem is unmounted."""
        while True:
            try:
                data = os.read(self._device, 1 << 17)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno == errno.ENOENT:  # a request that was taken back
                    continue
                return
            _, opcode, unique, node, *_ = _HEADER.unpack_from(data)
            request = Request(opcode, unique, node, data[_HEADER.size :])
            if opcode in _WANT_NO_ANSWER:
                continue
            with self._lock:
                if opcode in self._hanging:
                    self._held.append(request)
                    self.asked_while_hanging.set()
                else:
                    self._respond(request)

    def _respond(self, request: Request) -> None:
        try:
            answer, error = self._answer(request), 0
        except OSError as failure:
            answer, error = b"", -(failure.errno or errno.EIO)
        header = _ANSWER.pack(_ANSWER.size + len(answer), error, request.unique)
        try:
            os.write(self._device, header + answer)
        except OSError:
            pass  # the process that asked is gone

    def _answer(self, request: Request) -> bytes:
        path = self._paths[request.node] if request.node < len(self._paths) else b""
        match request.opcode:
            case Opcode.INIT:
                return struct.pack(
                    "<IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 12, 10, 1 << 16, 1, 0, 0, 0
                )
            case Opcode.LOOKUP:
                return self._entry(os.path.join(path, request.body.rstrip(b"\0")))
            case Opcode.GETATTR:
                return struct.pack("<QII", 0, 0, 0) + _attributes(path, request.node)
            case Opcode.READLINK:
                return os.readlink(path)
            case Opcode.OPEN | Opcode.OPENDIR:
                return struct.pack("<QIi", 0, 0, 0)
            case Opcode.READ:
                _, offset, size = _READING.unpack_from(request.body)
                return _read(path, offset, size)
            case Opcode.READDIR:
                _, offset, size = _READING.unpack_from(request.body)
                return _list(path, offset, size)
            case Opcode.STATFS:
                return struct.pack(
                    "<5Q4I24x", 10**6, 10**6, 10**6, 10**6, 10**6, 4096, 255, 4096, 0
                )
            case Opcode.RELEASE | Opcode.FLUSH | Opcode.RELEASEDIR | Opcode.ACCESS:
                return b""
        raise OSError(errno.ENOSYS, "not served")

    def _entry(self, path: bytes) -> bytes:
        os.lstat(path)
        node = self._nodes.get(path)
        if node is None:
            node = self._nodes[path] = len(self._paths)
            self._paths.append(path)
        return struct.pack("<4QII", node, 0, 0, 0, 0, 0) + _attributes(path, node)


def _attributes(path: bytes, node: int) -> bytes:
    found = os.lstat(path)
    times = [found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns]
    return _ATTRIBUTES.pack(
        node,
        found.st_size,
        found.st_blocks,
        *(moment // 10**9 for moment in times),
        *(moment % 10**9 for moment in times),
        found.st_mode,
        found.st_nlink,
        found.st_uid,
        found.st_gid,
        0,
        4096,
        0,
    )


def _read(path: bytes, offset: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def _list(path: bytes, offset: int, size: int) -> bytes:
    listing = b""
    names = [b".", b"..", *sorted(os.listdir(path))]
    for number, name in enumerate(names[offset:], offset + 1):
        kind = stat.S_IFMT(os.lstat(os.path.join(path, name)).st_mode) >> 12
        entry = _ENTRY.pack(number + 1, number, len(name), kind) + name
        entry += bytes(-len(entry) % 8)
        if len(listing) + len(entry) > size:
            break
        listing += entry
    return listing


@contextmanager
def hanging_filesystem(source: Path, mount_point: Path) -> Iterator[HangingFilesystem]:
    """Show `source` at `mount_point`; at the end a process that still waits gets an error."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    target = os.fsencode(mount_point)
    options = f"fd={device},rootmode=40755,user_id=0,group_id=0,allow_other"
    if libc.mount(b"hanging", target, b"fuse", _MS_RDONLY, options.encode()) != 0:
        number = ctypes.get_errno()
        os.close(device)
        raise OSError(number, f"cannot mount FUSE: {os.strerror(number)}", str(mount_point))
    filesystem = HangingFilesystem(source, device)
    server = threading.Thread(target=filesystem.serve, name="fuse", daemon=True)
    server.start()
    try:
        yield filesystem
    finally:
        libc.umount2(target, _MNT_FORCE | _MNT_DETACH)
        server.join(30)
        os.close(device)
