"""The agent's worker processes: one per owner of homes, and one more for each home set apart.

Every exchange has a deadline. A worker that misses it, dies or talks nonsense is ended, and its
homes get a new one. A home that was the cause, or that is slower than the others, is set apart with
a worker of its own, so that it takes no neighbour down.
"""

from __future__ import annotations

import os
import pwd
import socket
import subprocess  # noqa: TID251 - the one place that starts workers
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from exporter.errors import RefusedError, WorkerError
from exporter.text import listed
from exporter.workers import protocol
from exporter.workers.frames import Ready
from exporter.workers.privilege import missing_capabilities

_RECEIVE_BYTES: Final = 256 * 1024
_FRAMES_MAX: Final = 20_000
_ERRAND_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of the answer to an errand, which is kept whole: half a million things to prune."""
_LONGEST: Final = 24
"""So many times its seconds an errand may take that tells of progress."""
_START_SECONDS: Final = 60.0
_SEND_SECONDS: Final = 5.0
LET_GO_SECONDS: Final = 0.5
PROCESSES_PER_OWNER_MAX: Final = 24
"""Also those that a filesystem keeps from ending: whoever has one that hangs, or many, gets no more
than this of the host."""
Question = protocol.LookRequest | protocol.ReadRequest | protocol.ExplainRequest | protocol.Errand
_ANSWERS: Final[dict[type[Question], tuple[type[protocol.Reply], ...]]] = {
    protocol.LookRequest: (protocol.LookReply,),
    protocol.ReadRequest: (protocol.ReadReply, protocol.UsagePage, protocol.SessionsPage),
    protocol.ExplainRequest: (protocol.ExplainReply,),
    protocol.PlanReapRequest: (protocol.PlanReapReply, protocol.ReapActionsPage),
    protocol.ReapRequest: (protocol.ReapReply, protocol.OutcomePage),
    protocol.UndoRequest: (protocol.UndoReply, protocol.OutcomePage, protocol.Progress),
    protocol.HistoryRequest: (protocol.HistoryReply, protocol.HistoryPage, protocol.ActionsPage),
    protocol.PlanPruneRequest: (protocol.PlanPruneReply, protocol.PruneActionsPage),
    protocol.PruneRequest: (protocol.PruneReply, protocol.OutcomePage, protocol.Progress),
    protocol.PurgeRequest: (protocol.PruneReply, protocol.OutcomePage),
    protocol.SettleRequest: (protocol.SettleReply,),
    protocol.HealRequest: (protocol.HealReply,),
    protocol.UpkeepRequest: (protocol.UpkeepReply,),
}
"""What may come in answer to each question, the reply that ends it first."""


class Worker:
    """One worker process and the channel to it; one request at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it, in a thread that stays: with the thread that started it, a worker ends."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise WorkerError(f"cannot start a worker: {error.strerror}") from error
        try:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                close_fds=True,
                cwd="/",
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise WorkerError(f"cannot start a worker: {error.strerror}") from error
        finally:
            theirs.close()
        self._channel = ours
        self._stream = protocol.ReplyStream()
        self._heard = 0
        """Bytes of the answer so far."""
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Question, seconds: float) -> Iterator[protocol.Reply]:
        """Send a request and give out replies as they come, up to the one that ends the answer.

        Raise TimeoutError if it takes longer than `seconds`, once the process has started, and
        RefusedError if it was understood and not done. Whoever makes progress has that long again,
        though not for ever. An answer that is not heard to its end leaves the worker unfit for
        another question.
        """
        self.wait_ready()
        deadline = time.monotonic() + seconds
        give_up_at = deadline + (_LONGEST - 1) * seconds
        self.send(request)
        allowed = _ANSWERS[type(request)]
        frames, settled, self._heard = 0, -1, 0
        while True:
            for reply in self.receive(deadline - time.monotonic()):
                frames += 1
                if self._heard > _ERRAND_BYTES_MAX and isinstance(request, protocol.Errand):
                    raise WorkerError("a worker has too much to tell; it is ended")
                if time.monotonic() > deadline:
                    raise TimeoutError("a worker did not finish its answer in time")
                if isinstance(reply, protocol.Failure):
                    raise WorkerError(f"a worker failed: {reply.detail}")
                if isinstance(reply, protocol.Refusal) and isinstance(request, protocol.Errand):
                    raise RefusedError(reply.why, busy=reply.busy)
                if frames > _FRAMES_MAX or not isinstance(reply, allowed):
                    raise WorkerError("a worker sent what it was not asked for; it is ended")
                if isinstance(reply, protocol.Progress) and reply.settled > settled:
                    settled = reply.settled
                    deadline = min(time.monotonic() + seconds, give_up_at)
                    frames -= 1
                yield reply
                if isinstance(reply, allowed[0]):
                    return

    def wait_ready(self) -> None:
        """Return when the process has started; a busy host takes its time."""
        if self._ready:
            return
        replies: list[protocol.Reply] = []
        deadline = time.monotonic() + _START_SECONDS
        try:
            while not replies:
                replies = self.receive(deadline - time.monotonic())
        except TimeoutError as error:
            raise WorkerError(f"a worker did not start within {_START_SECONDS:.0f} s") from error
        if replies != [Ready()]:
            raise WorkerError("a worker spoke before it was asked; it is ended")
        self._ready = True

    def send(self, request: protocol.Request) -> None:
        try:
            self._channel.settimeout(_SEND_SECONDS)
            protocol.send(self._channel, request)
        except OSError as error:
            raise WorkerError("a worker is gone") from error

    def receive(self, seconds: float) -> list[protocol.Reply]:
        """What comes next, perhaps not a whole reply yet; raise TimeoutError if nothing does."""
        try:
            self._channel.settimeout(max(0.001, seconds))
            data = self._channel.recv(_RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError as error:  # another thread has ended it
            raise WorkerError("a worker is gone") from error
        if not data:
            raise WorkerError("a worker died")
        self._heard += len(data)
        return self._stream.feed(data)

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill it; a thread that waits for its answer is told at once."""
        try:
            self._channel.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it was gone before
        self._process.kill()

    def is_gone(self, wait_seconds: float = 0.0) -> bool:
        """Whether it is dead; the kernel keeps one that waits for a filesystem which hangs."""
        try:
            self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return False
        self._channel.close()
        return True


def start_worker(owner: int) -> Worker:
    """A worker that reads homes as their owner."""
    if owner == os.geteuid():
        return Worker(own_program("exporter.workers.worker"))
    missing = missing_capabilities()
    if missing:
        raise WorkerError(f"cannot act as uid {owner}: this agent lacks {listed(missing, 'and')}")
    return Worker(own_program("exporter.workers.worker", str(owner), str(_group_of(owner))))


def own_program(module: str, *arguments: str) -> list[str]:
    """The command line that starts a module of ours as a child of this process."""
    return [sys.executable, "-I", "-m", module, str(os.getpid()), *arguments]


def _group_of(owner: int) -> int:
    try:
        return pwd.getpwuid(owner).pw_gid
    except KeyError:
        return owner


_Key = tuple[int, str]
"""Owner of the home, and its path if it is set apart."""


class Pool:
    """Finds the right worker for a home, and replaces it when it fails. Any thread may call."""

    def __init__(self, start: Callable[[int], Worker] = start_worker) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._workers: dict[_Key, Worker] = {}
        self._apart: dict[str, int] = {}
        self._errands: list[Worker] = []
        self._stuck: list[tuple[_Key, Worker]] = []
        self._closed = False

    def worker(self, owner: int, home: str) -> Worker:
        """The worker for this home."""
        with self._lock:
            if self._closed:
                raise WorkerError("the agent is stopping")
            key = self.lane(owner, home)
            worker = self._workers.get(key)
            if worker is not None and worker.alive():
                return worker
            self._refuse_more(owner)
            started = self._workers[key] = self._start(owner)
        if worker is not None:
            self._end(worker, owner, home)
        return started

    def _refuse_more(self, owner: int) -> None:
        self._stuck = [(where, worker) for where, worker in self._stuck if not worker.is_gone()]
        keys = [*self._workers, *(key for key, _ in self._stuck)]
        if sum(key[0] == owner for key in keys) >= PROCESSES_PER_OWNER_MAX:
            raise WorkerError(
                f"uid {owner} has {PROCESSES_PER_OWNER_MAX} workers that are busy or do not end"
            )

    @contextmanager
    def errand(self, owner: int) -> Iterator[Worker]:
        """A worker for one long errand, so that nobody who scans has to wait for it."""
        with self._lock:
            if self._closed:
                raise WorkerError("the agent is stopping")
            worker = self._start(owner)
            self._errands.append(worker)
        try:
            yield worker
        finally:
            with self._lock:
                self._errands.remove(worker)
            self._end(worker, owner, "")

    def pids(self) -> frozenset[int]:
        """The workers that there are, also those that do not end."""
        with self._lock:
            stuck = [worker for _, worker in self._stuck]
            workers = [*self._workers.values(), *self._errands, *stuck]
        return frozenset(worker.pid for worker in workers)

    def lane(self, owner: int, home: str) -> _Key:
        """Homes of one lane share a worker, so they are scanned one after another."""
        return owner, home if home in self._apart else ""

    def is_apart(self, home: str) -> bool:
        return home in self._apart

    def apart(self) -> dict[int, list[str]]:
        """The homes set apart, by owner, those that have been for longest first."""
        by_owner: dict[int, list[str]] = {}
        with self._lock:
            for home, owner in self._apart.items():
                by_owner.setdefault(owner, []).append(home)
        return by_owner

    def rejoin(self, owner: int, home: str) -> None:
        """Let a home share its owner's worker again."""
        with self._lock:
            self._apart.pop(home, None)
            worker = self._workers.pop((owner, home), None)
        if worker is not None:
            self._end(worker, owner, home)

    def set_apart(self, owner: int, home: str) -> None:
        """Leave this home the worker that is busy with it; its neighbours get a new one."""
        with self._lock:
            if home not in self._apart:
                self._apart[home] = owner
                if (worker := self._workers.pop((owner, ""), None)) is not None:
                    self._workers[owner, home] = worker

    def fail(self, owner: int, home: str, *, apart: bool) -> None:
        """End the worker that failed on this home; `apart` if the home is to blame."""
        with self._lock:
            worker = self._workers.pop(self.lane(owner, home), None)
            if apart:
                self._apart.setdefault(home, owner)
        if worker is not None:
            self._end(worker, owner, home)

    def _end(self, worker: Worker, owner: int, home: str) -> None:
        worker.end()
        if not worker.is_gone(LET_GO_SECONDS):
            with self._lock:
                self._stuck.append(((owner, home), worker))

    def is_stuck(self, home: str) -> bool:
        """Whether a worker that was ended still waits for this home: another would fare no better.

        So a filesystem that hangs for a week costs one process, and not one for each attempt.
        """
        with self._lock:
            self._stuck = [(where, worker) for where, worker in self._stuck if not worker.is_gone()]
            return any(where[1] == home for where, _ in self._stuck)

    def keep_only(self, homes: set[tuple[int, str]]) -> None:
        """End the workers of owners, and of homes set apart, that there are no more."""
        owners = {owner for owner, _ in homes}
        with self._lock:
            self._apart = {h: owner for h, owner in self._apart.items() if (owner, h) in homes}
            unneeded = [
                (key, self._workers.pop(key))
                for key in list(self._workers)
                if (key[1] and key not in homes) or key[0] not in owners
            ]
        for (owner, home), worker in unneeded:
            self._end(worker, owner, home)

    def close(self) -> None:
        """End all workers and start none again."""
        with self._lock:
            self._closed = True
            workers = [*self._workers.values(), *self._errands]
            self._workers.clear()
        for worker in workers:
            worker.end()
        deadline = time.monotonic() + LET_GO_SECONDS
        for worker in workers:
            worker.is_gone(max(0.0, deadline - time.monotonic()))
