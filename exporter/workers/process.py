"""One child process of the agent, and the channel to it.

It loads no request before the first call: a command starts its first process while it loads them.
"""

from __future__ import annotations

import os
import pwd
import select
import signal
import socket
import subprocess  # noqa: TID251 - the one place that starts programs for the agent
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import msgspec

from exporter.errors import RefusedError, WorkerError
from exporter.text import join_words
from exporter.workers.cancellation import Cancellation
from exporter.workers.early_server import ENVIRONMENT, own_program
from exporter.workers.frames import FRAME_BYTES_MAX, READY, Frame, FrameReader, pack
from exporter.workers.privilege import missing_capabilities

if TYPE_CHECKING:
    from exporter.workers.protocol import Call

END_WAIT_SECONDS: Final = 0.5
_RECEIVE_BYTES: Final = 256 * 1024
_FRAMES_MAX: Final = 20_000
_PROGRESS_FACTOR: Final = 24
"""A call that reports progress may take this many times its time limit."""
_START_SECONDS: Final = 60.0
_SEND_SECONDS: Final = 5.0

AnyRequest = TypeVar("AnyRequest")
T = TypeVar("T")
Part = TypeVar("Part")
Reply = TypeVar("Reply")


class RunningProcess(Protocol):
    """A child of this process, started as a program or forked; `subprocess.Popen` is one."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float) -> int: ...
    def kill(self) -> None: ...


Start = Callable[[socket.socket], RunningProcess]
"""Starts a process that has this end of its channel as standard input."""


class Started(NamedTuple):
    """A process, and our end of its channel."""

    channel: socket.socket
    process: RunningProcess


class ChildProcess:
    """A process that the agent started and that answers over a socket."""

    def __init__(self, start: Start | Sequence[str] | Started) -> None:
        """Start it, or a program with this command line; or use one that was started already.

        The calling thread must stay: a program ends with the thread that started it.
        """
        started = start if isinstance(start, Started) else self._start(start)
        self._channel, self._process = started
        self._ended = False
        self._reader = FrameReader()
        self._ready = False

    @staticmethod
    def _start(start: Start | Sequence[str]) -> Started:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise WorkerError(f"cannot start a worker: {error.strerror}") from error
        try:
            process = start(theirs) if callable(start) else _start_program(start, theirs)
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise WorkerError(f"cannot start a worker: {error.strerror}") from error
            raise
        finally:
            theirs.close()
        return Started(ours, process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Return when the process has started; this can take long on a busy host."""
        if self._ready:
            return
        frames: list[Frame] = []
        deadline = time.monotonic() + _START_SECONDS
        try:
            while not frames:
                frames = list(self.receive(deadline - time.monotonic()))
        except TimeoutError as error:
            raise WorkerError(f"a worker did not start within {_START_SECONDS:.0f} s") from error
        if [frame.name for frame in frames] != [READY]:
            raise WorkerError("a worker spoke before it was asked; it is ended")
        self._ready = True

    def send(self, name: str, message: object) -> None:
        try:
            self._channel.settimeout(_SEND_SECONDS)
            self._channel.sendall(pack(name, message))
        except OSError as error:
            raise WorkerError("a worker is gone") from error

    def receive(self, seconds: float, bytes_max: int = FRAME_BYTES_MAX) -> Iterator[Frame]:
        """Yield frames that arrived, perhaps none yet; raise TimeoutError if nothing arrives."""
        try:
            self._channel.settimeout(max(0.001, seconds))
            data = self._channel.recv(_RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError as error:  # another thread has ended it
            raise WorkerError("a worker is gone") from error
        if not data:
            raise WorkerError(self._how_it_died())
        return self._reader.feed(data, bytes_max)

    def _how_it_died(self) -> str:
        try:
            status = self._process.wait(END_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "a worker died"
        if status == -signal.SIGKILL and not self._ended:
            return (
                "a worker was killed, as the kernel does if memory is short: "
                "raise MemoryMax= of the service, or prune old sessions"
            )
        return "a worker died"

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill it; a thread that waits for its answer returns at once."""
        self._ended = True
        try:
            self._channel.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it was already gone
        self._process.kill()

    def is_gone(self, wait_seconds: float = 0.0) -> bool:
        """True if it is dead; the kernel keeps a process that waits for a hanging filesystem."""
        try:
            self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return False
        self._channel.close()
        return True


def _start_program(command: Sequence[str], channel: socket.socket) -> RunningProcess:
    return subprocess.Popen(
        command,
        stdin=channel.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=True,
        cwd="/",
        env=ENVIRONMENT,
        start_new_session=True,
    )


class Worker(ChildProcess):
    """A process that reads homes and acts on them as their owner; one call at a time."""

    def call(
        self,
        what: Call[AnyRequest, Part, Reply],
        request: AnyRequest,
        seconds: float = 0.0,
        *,
        part: Callable[[Part], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
        cancellation: Cancellation | None = None,
    ) -> Reply:
        """Send a request and return the reply; call `part` and `progress` for messages before it.

        A requested cancellation is sent once; the worker then replies from its next safe point.

        - TimeoutError: it took longer than `seconds` after the process started. Progress extends
          this time, up to a maximum.
        - RefusedError: the worker understood the request and did not do it.
        - After a call without a complete answer, the worker cannot take another call.
        """
        from exporter.workers import protocol

        self.wait_ready()
        seconds = seconds or what.seconds
        deadline = time.monotonic() + seconds
        give_up_at = deadline + (_PROGRESS_FACTOR - 1) * seconds
        self.send(what.name, request)
        frames, settled = 0, -1
        while True:
            if cancellation is not None and self._woken_by(cancellation, deadline):
                self.send(protocol.CANCEL, None)
                cancellation = None
            for frame in self.receive(deadline - time.monotonic(), what.reply_bytes_max):
                frames += 1
                if time.monotonic() > deadline:
                    raise TimeoutError("a worker did not finish its answer in time")
                if frame.name == protocol.DONE:
                    return what.decode_reply(frame.body)
                # Only the reply that names every target may be long, and it comes once.
                if frames > _FRAMES_MAX or len(frame.body) > FRAME_BYTES_MAX:
                    raise WorkerError("a worker has too much to tell; it is ended")
                if frame.name == protocol.PROGRESS:
                    told = protocol.decode(_decoder(protocol.Progress), frame.body)
                    if told.settled > settled:
                        settled, frames = told.settled, frames - 1
                        more = max(seconds, what.seconds)
                        deadline = min(time.monotonic() + more, max(give_up_at, deadline))
                    if progress is not None:
                        progress(told.settled, told.total)
                elif frame.name == protocol.PART:
                    heard = what.decode_part(frame.body)
                    if part is not None:
                        part(heard)
                else:
                    raise _refusal(frame)

    def _woken_by(self, cancellation: Cancellation, deadline: float) -> bool:
        """Wait for the worker or the cancellation; True if it is the latter."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(cancellation, select.POLLIN)
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        return any(descriptor == cancellation.fileno() for descriptor, _ in ready)


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def _refusal(frame: Frame) -> RefusedError | WorkerError:
    from exporter.workers import protocol

    if frame.name == protocol.REFUSED:
        refusal = protocol.decode(_decoder(protocol.Refusal), frame.body)
        return RefusedError(refusal.why, busy=refusal.busy)
    if frame.name == protocol.FAILED:
        failure = protocol.decode(_decoder(protocol.Failure), frame.body)
        return WorkerError(f"a worker failed: {failure.detail}")
    return WorkerError("a worker sent what it was not asked for; it is ended")


def start_worker(owner: int) -> Worker:
    """Start a worker that reads homes as their owner, as a program of its own."""
    return Worker(own_program("exporter.workers.worker", *map(str, user_to_become(owner))))


def start_path_probe() -> ChildProcess:
    """Start the process that looks at paths which may hang, as a program of its own."""
    return ChildProcess(own_program("exporter.workers.path_probe"))


def user_to_become(owner: int) -> tuple[()] | tuple[int, int]:
    """Return uid and gid of a worker that reads this owner's homes; none if they are our own."""
    if owner == os.geteuid():
        return ()
    missing = missing_capabilities()
    if missing:
        raise WorkerError(
            f"cannot act as uid {owner}: this agent lacks {join_words(missing, 'and')}"
        )
    return owner, _group_of(owner)


def _group_of(owner: int) -> int:
    try:
        return pwd.getpwuid(owner).pw_gid
    except KeyError:
        return owner
