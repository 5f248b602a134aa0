"""Share work among forked processes: a second one halves the time of a walk, threads add to it.

Only a process without threads may fork like this; it works along with its children. All take the
next piece from one shared pipe, so a slow core gets fewer pieces. A child answers with JSON over
its own pipe. It exits without cleanup, because the cleanup belongs to its parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)
"""Loaded once, before any fork: each `CDLL` makes a class, which takes memory in every process."""
_PIECE: Final = struct.Struct("II")
_PIECE_JOBS: Final = 8
"""Jobs in a piece, if there are many jobs; more only if the pipe could not hold all pieces."""
_PIECES_EACH: Final = 8
"""Pieces for each process, if there are few jobs: then none waits long for the last piece."""
_PIPE_BYTES: Final = 32 * 1024
"""A pipe takes this much without a reader, on every system."""
Result = TypeVar("Result")


class ForkPool(Generic[Result]):
    """Up to `processes` processes that do one kind of work on numbered jobs."""

    def __init__(self, processes: int, result: type[Result]) -> None:
        self._processes = processes
        self._decoder = msgspec.json.Decoder(list[tuple[int, result]])  # type: ignore[valid-type]

    def can_fork(self) -> bool:
        """True if this process may fork and would gain by it."""
        return self._processes > 1 and is_single_threaded()

    def map(self, jobs: int, work: Callable[[int], Result | None]) -> dict[int, Result]:
        """Return the results of `work` by job number; results that a child lost are missing."""
        pieces = _pipe_of_pieces(jobs, self._processes)
        begun = [self._start(pieces, work) for _ in range(self._processes - 1)]
        children = [child for child in begun if child is not None]
        results: dict[int, Result] = {}
        try:
            results.update(_do_pieces(pieces, work, os.getppid()))
        finally:
            os.close(pieces)
            for pid, answers in children:
                results.update(self._collect(pid, answers))
        return results

    def in_child(self, work: Callable[[int], Result | None]) -> Result | None:
        """Return the result of one job done by a child alone; None if it was lost.

        The memory that the job needs is freed when the child ends.
        """
        pieces = _pipe_of_pieces(1, 1)
        child = self._start(pieces, work)
        os.close(pieces)
        return dict(self._collect(*child)).get(0) if child is not None else None

    def _collect(self, pid: int, answers: int) -> list[tuple[int, Result]]:
        """Wait for the end of a child and return its results."""
        with os.fdopen(answers, "rb") as stream:
            content = stream.read()
        os.waitpid(pid, 0)
        try:
            done: list[tuple[int, Result]] = self._decoder.decode(content)
        except msgspec.MsgspecError:
            return []
        return done

    def _start(self, pieces: int, work: Callable[[int], Result | None]) -> tuple[int, int] | None:
        """Fork a child; return its PID and the descriptor to read its answers from.

        None if the system allows no more processes.
        """
        parent = os.getpid()
        answers, writing = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(answers)
            os.close(writing)
            return None
        if pid == 0:
            try:
                _write_all(writing, msgspec.json.encode(_do_pieces(pieces, work, parent)))
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writing)
        return pid, answers


def _do_pieces(
    pieces: int, work: Callable[[int], Result | None], parent: int
) -> list[tuple[int, Result]]:
    """Work on pieces until there are none, or the parent has ended."""
    done: list[tuple[int, Result]] = []
    while os.getppid() == parent and (piece := os.read(pieces, _PIECE.size)):
        for job in range(*_PIECE.unpack(piece)):
            result = work(job)
            if result is not None:
                done.append((job, result))
    return done


def _pipe_of_pieces(jobs: int, processes: int) -> int:
    """Return the reading end of a pipe that holds all jobs in pieces; its writing end is closed."""
    fair = min(_PIECE_JOBS, jobs // (processes * _PIECES_EACH))
    size = max(1, fair, -(-jobs * _PIECE.size // _PIPE_BYTES))
    pieces = [_PIECE.pack(first, min(first + size, jobs)) for first in range(0, jobs, size)]
    reading, writing = os.pipe()
    os.write(writing, b"".join(pieces))
    os.close(writing)
    return reading


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def is_single_threaded() -> bool:
    """True if this process has a single thread, and so may fork."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return threading.active_count() == 1


def die_with_parent() -> None:
    """Ask the kernel to end this process with its parent. A change of uid cancels this."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
