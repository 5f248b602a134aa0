"""The agent's worker processes: one per owner of homes, and one more for each home that hung.

Every exchange has a deadline. A worker that misses it, dies or talks nonsense is ended; its homes
get a new one, and the home that was being read gets one of its own from then on, so that a hung
filesystem takes no neighbour down.
"""

from __future__ import annotations

import os
import pwd
import select
import socket
import subprocess  # noqa: TID251 - the one place that starts workers
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

from exporter import wire
from exporter.errors import WorkerError

_RECEIVE_BYTES: Final = 256 * 1024
_FRAMES_MAX: Final = 20_000
_REAP_SECONDS: Final = 0.5


class Worker:
    """One worker process and the channel to it."""

    def __init__(self, owner: int | None) -> None:
        """Start one as that owner; None means with the agent's own privileges."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-m", "exporter.worker", str(os.getpid())]
        if owner is not None and owner != os.geteuid():
            command += [str(owner), str(_group_of(owner))]
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
        self._stream = wire.ReplyStream()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(
        self,
        request: wire.Request,
        deadline: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> Iterator[wire.Reply]:
        """Send a request and give out replies as they come, up to the one that ends the answer."""
        self._send(request, deadline, monotonic)
        for _ in range(_FRAMES_MAX):
            for reply in self._receive(deadline, monotonic):
                yield reply
                if isinstance(reply, wire.InspectReply | wire.LookReply | wire.ReadReply):
                    return
                if isinstance(reply, wire.Failure):
                    raise WorkerError(f"a worker failed: {reply.detail}")
        raise WorkerError(f"a worker sent more than {_FRAMES_MAX} frames")

    def _send(self, request: wire.Request, deadline: float, monotonic: Callable[[], float]) -> None:
        self._channel.settimeout(max(0.001, deadline - monotonic()))
        try:
            wire.send(self._channel, request)
        except OSError as error:
            raise WorkerError("a worker is gone") from error

    def _receive(self, deadline: float, monotonic: Callable[[], float]) -> list[wire.Reply]:
        left = deadline - monotonic()
        if left <= 0 or not select.select([self._channel], [], [], left)[0]:
            raise TimeoutError("a worker did not answer in time")
        try:
            data = self._channel.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise WorkerError("a worker is gone") from error
        if not data:
            raise WorkerError("a worker died")
        return self._stream.feed(data)

    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill it; one that the kernel does not let go of yet is left to init."""
        self._channel.close()
        self._process.kill()
        try:
            self._process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            _unreaped.append(self._process)


_unreaped: list[subprocess.Popen[bytes]] = []


def reap_stragglers() -> int:
    """Collect workers that died after we stopped waiting for them; how many are still stuck."""
    _unreaped[:] = [process for process in _unreaped if process.poll() is None]
    return len(_unreaped)


def _group_of(owner: int) -> int:
    try:
        return pwd.getpwuid(owner).pw_gid
    except KeyError:
        return owner


class Pool:
    """Finds the right worker for a home, and replaces it when it fails."""

    def __init__(self, start: Callable[[int | None], Worker] = Worker) -> None:
        self._start = start
        self._workers: dict[tuple[int | None, str], Worker] = {}
        self._quarantined: set[str] = set()

    def worker(self, owner: int | None, home: str = "") -> Worker:
        """The worker for this home; homes that hung before have one of their own."""
        key = self._key(owner, home)
        worker = self._workers.get(key)
        if worker is None or not worker.alive():
            if worker is not None:
                worker.end()
            worker = self._workers[key] = self._start(owner)
        return worker

    def lane(self, owner: int | None, home: str) -> tuple[int | None, str]:
        """Homes of one lane share a worker, so they are scanned one after another."""
        return self._key(owner, home)

    def quarantined(self, home: str) -> bool:
        return home in self._quarantined

    def _key(self, owner: int | None, home: str) -> tuple[int | None, str]:
        return owner, home if home in self._quarantined else ""

    def fail(self, owner: int | None, home: str = "", *, hung: bool) -> None:
        """End the worker that failed on this home; if the home hung it, keep it apart from now."""
        worker = self._workers.pop(self._key(owner, home), None)
        if worker is not None:
            worker.end()
        if hung and home:
            self._quarantined.add(home)

    def release(self, owner: int | None, home: str) -> None:
        """A home that answers again need not be kept apart."""
        worker = self._workers.pop((owner, home), None)
        if worker is not None:
            worker.end()
        self._quarantined.discard(home)

    def keep_only(self, owners: set[int | None]) -> None:
        """End the workers of owners who have no home any more."""
        for key in [key for key in self._workers if key[0] not in owners]:
            self._workers.pop(key).end()

    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers.values()]

    def close(self) -> None:
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()
