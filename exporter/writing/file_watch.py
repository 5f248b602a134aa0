"""Was state.db replaced, or rewritten in place, while a run of ours was writing it?

`hermes import` writes another database into the same file and asks no process; a person may rename
one over it. A run that went on would write into a deleted file, or mix pages of the old database,
which wait in the WAL, into the new one.

In WAL mode nothing but a checkpoint writes the main file. So a run notes it when it opens it and
after each checkpoint of its own. If the file has changed since, a short-lived process may have made
a checkpoint: then each page is as noted, or is one of those in the WAL. A sample of pages is
compared. If the WAL is empty or began anew, nothing is compared: SQLite allows that only when all
of it is in the main file, so nothing of ours can get into another database. Hermes from 0.16 on
truncates the WAL whenever it closes the database. Beside a process that has the database open it
could also be an older page that this process has written, so there only another inode counts.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from exporter.hermes.database import FileState, file_state
from exporter.hermes.sqlite_locks import SHARED_BYTES, SHARED_FIRST
from exporter.snapshot import FileIdentity
from exporter.writing.write_checks import WriteError, WriteTrouble

_SAMPLE: Final = 32
"""Pages that are compared; the first tells how large the database is, and of which schema."""
_HEADER_BYTES: Final = 100
_WAL_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
# O_NONBLOCK: the owner may have put a FIFO here.
_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
ReadPart = Callable[[int, int], bytes]
"""Returns what the main file has from an offset on, so many bytes; b'' if it is too short."""


class ReplacedError(WriteError):
    """Another database is at the path, or its file was rewritten: nothing more is done there."""

    def __init__(self, path: str) -> None:
        super().__init__(
            WriteTrouble.REPLACED,
            f"{path} was replaced or rewritten during the run; left the rest alone",
        )


class _Wal(NamedTuple):
    """A WAL file and its generation: the header changes whenever the WAL begins anew."""

    identity: FileIdentity
    header: bytes


class During(Enum):
    """When it is looked at."""

    NO_CONNECTION = auto()
    CONNECTION = auto()
    TRANSACTION = auto()
    """Under the write lock, without which no process begins the WAL anew: if it did, we did it."""


class FileWatch:
    """What a run knows of the files it has opened, over all its connections."""

    def __init__(self) -> None:
        self.replaced = False
        """True once it was found so; it stays so until the next run."""
        self._is_shared = False
        """Another process had it open, or may have without being seen: it may make checkpoints."""
        self._noted: FileState | None = None
        self._pages: dict[int, bytes] = {}
        """The sample, by page number."""
        self._wal: _Wal | None = None

    def begin(self) -> None:
        """Forget what an earlier run has noted."""
        self.replaced = self._is_shared = False
        self._noted, self._pages, self._wal = None, {}, None

    @property
    def has_noted(self) -> bool:
        """True from the first opening on."""
        return self._noted is not None

    def note_shared(self) -> None:
        """From now on only another inode counts."""
        self._is_shared = True

    def note_wal(self, path: str, look: Callable[[], None]) -> None:
        """Note the WAL that our connection uses, after it was opened.

        `look` refuses a replaced file once more. It looks after the WAL was read: what a process
        does in between then shows in the WAL, which is not as noted.
        """
        found = _read_wal(path)
        look()
        self._wal = found

    def note_wal_start(self, path: str, is_ours: Callable[[], bool] = lambda: True) -> bool:
        """Note how the WAL begins now; True if it still begins as it was noted.

        It is the same file as long as we are connected. `is_ours` tells afterwards if only we can
        have written it: what another process has begun anew is not noted.
        """
        found, noted = _read_wal(path), self._wal
        if found and noted and found.identity == noted.identity and is_ours():
            self._wal = found
        return found == noted

    def refuse_replaced(
        self,
        path: str,
        read: ReadPart,
        look: Callable[[], object],
        during: During,
        written_beside: Callable[[], bool] = lambda: False,
    ) -> None:
        """Raise ReplacedError if it is another database than at first; note it the first time.

        `look` calls `note_shared` if need be. `written_beside` tells if our connection knows of a
        commit by another process: of an empty WAL nothing else is known. While we are connected no
        process that closes the database removes its WAL: a person must have.
        """
        if not self.replaced and not self._is_other(path, read, look, during, written_beside):
            return
        self.replaced = True
        raise ReplacedError(path)

    def _is_other(
        self,
        path: str,
        read: ReadPart,
        look: Callable[[], object],
        during: During,
        written_beside: Callable[[], bool],
    ) -> bool:
        found, noted = file_state(path), self._noted
        if found is None or (noted is not None and found.identity != noted.identity):
            return noted is not None
        if during is not During.NO_CONNECTION and self._wal is not None:
            wal = file_state(path + "-wal")
            if wal is None or wal.identity != self._wal.identity:
                return True
        if during is During.CONNECTION:
            same_wal = self.note_wal_start(path)
        else:
            same_wal = during is During.TRANSACTION or self._has_our_wal(path)
        if noted is not None and (self._is_shared or _stamp(noted) == _stamp(found)):
            return False  # beside another process, whose checkpoints cannot be told from a rewrite
        changed = _changed(self._pages, read, found.size_bytes)
        if changed:
            look()
        if changed and not self._is_shared and same_wal and not _are_in_wal(changed, path + "-wal"):
            is_empty = self._wal is not None and not self._wal.header
            if during is not During.CONNECTION:
                return True
            # Again: a process may have begun it anew while the pages were looked for in it.
            if _read_wal(path) == self._wal and not (is_empty and written_beside()):
                return True
        self._noted, self._pages = found, _sample(read, found.size_bytes)
        return False

    def _has_our_wal(self, path: str) -> bool:
        """True if the WAL begins as noted, and is not empty."""
        return self._wal is not None and bool(self._wal.header) and _read_wal(path) == self._wal

    def drop_old_wal(self, path: str) -> None:
        """Truncate the WAL that we wrote before the database was replaced; do not write it back.

        SQLite would write it over the new database. Only for a process without a connection, and
        under the lock that no process gets beside one that has the database open. A WAL that is not
        as we left it is not ours.
        """
        if not self.replaced or self._wal is None:
            return
        try:
            database = os.open(path, os.O_RDWR | _FLAGS)
            try:
                fcntl.lockf(database, fcntl.LOCK_EX | fcntl.LOCK_NB, SHARED_BYTES, SHARED_FIRST)
                if _read_wal(path) == self._wal:
                    _truncate(path + "-wal")
            finally:
                os.close(database)
        except OSError:
            return  # it is in use, or gone


def reader_of(path: str) -> ReadPart:
    """Read the main file by its path; only for a process without a connection to it."""
    return lambda offset, size: _read(path, size, offset)


def _sample(read: ReadPart, size_bytes: int) -> dict[int, bytes]:
    page_bytes = _page_bytes(read(0, _HEADER_BYTES))
    pages = size_bytes // page_bytes
    numbers = {1, *(1 + pages * each // _SAMPLE for each in range(_SAMPLE))}
    return {each: read((each - 1) * page_bytes, page_bytes) for each in sorted(numbers)}


def _changed(noted: Mapping[int, bytes], read: ReadPart, size_bytes: int) -> dict[int, bytes]:
    """Return the pages of the sample that are not as noted; a checkpoint may cut the last off."""
    found = {
        number: read((number - 1) * len(page), len(page))
        for number, page in noted.items()
        if page and (number == 1 or number * len(page) <= size_bytes)
    }
    return {number: page for number, page in found.items() if page != noted[number]}


def _page_bytes(header: bytes) -> int:
    size = int.from_bytes(header[16:18])
    return 65536 if size == 1 else max(size, 512)


def _stamp(state: FileState) -> tuple[int, int]:
    return state.size_bytes, state.modified_ns


def _read_wal(path: str) -> _Wal | None:
    """SQLite takes no locks on the WAL, so closing a descriptor of it loses none."""
    found = file_state(path + "-wal")
    return _Wal(found.identity, _read(path + "-wal", _WAL_HEADER_BYTES)) if found else None


def _read(file: str, size: int, offset: int = 0) -> bytes:
    try:
        descriptor = os.open(file, os.O_RDONLY | _FLAGS)
    except OSError:
        return b""
    try:
        found = os.pread(descriptor, size, offset)
    except OSError:
        return b""
    else:
        return found if len(found) == size else b""
    finally:
        os.close(descriptor)


def _are_in_wal(pages: Mapping[int, bytes], wal: str) -> bool:
    """True if the WAL has each of these, also where it was not yet overwritten from its start."""
    left = dict(pages)
    try:
        descriptor = os.open(wal, os.O_RDONLY | _FLAGS)
    except OSError:
        return False
    try:
        page_bytes = int.from_bytes(os.pread(descriptor, _WAL_HEADER_BYTES, 0)[8:12])
        size = os.fstat(descriptor).st_size if page_bytes else 0
        for offset in range(_WAL_HEADER_BYTES, size, _FRAME_HEADER_BYTES + page_bytes):
            number = int.from_bytes(os.pread(descriptor, 4, offset))
            if number in left and left[number] == os.pread(
                descriptor, page_bytes, offset + _FRAME_HEADER_BYTES
            ):
                del left[number]
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return not left


def _truncate(wal: str) -> None:
    descriptor = os.open(wal, os.O_RDWR | _FLAGS)
    try:
        os.ftruncate(descriptor, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
