"""Start workers and the path probe: forked where the system can, elsewhere as programs.

Each owner of homes has a worker. Workers that are forked from one process share its memory, so each
further one costs a fraction of a program of its own.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess  # noqa: TID251 - only for its exception; the fork server starts nothing else
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from errno import EINVAL, ENOSYS, EPERM
from typing import Final

import msgspec

from exporter import logs
from exporter.errors import WorkerError
from exporter.workers.early_server import FORK_SERVER, EarlyServer, can_fork, own_program
from exporter.workers.fork_messages import FORK, ForkReply, ForkRequest
from exporter.workers.frames import pack
from exporter.workers.process import (
    END_WAIT_SECONDS,
    ChildProcess,
    RunningProcess,
    Started,
    Worker,
    start_path_probe,
    start_worker,
    user_to_become,
)

_REPLY_SECONDS: Final = 60.0
_REPLY: Final = msgspec.json.Decoder(ForkReply)
_FIRST_PAUSE_SECONDS: Final = 0.0005
_LONGEST_PAUSE_SECONDS: Final = 0.05
_NO_SUCH_FORK: Final = (ENOSYS, EINVAL, EPERM)
"""Errors of a sandbox that does not know CLONE_PARENT; it may still start programs."""

log = logs.get("workers")


class Starter:
    """Starts the processes of one agent. Any thread may call it."""

    def __init__(self, early: EarlyServer | None = None) -> None:
        """`early` is a fork server that this thread has started, and that is still loading."""
        # One thread starts all fork servers and stays: they and what they fork end with it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="starter")
        self._lock = threading.Lock()
        self._server: _ForkServer | None = None
        if early is not None:
            self._server = _ForkServer(Started(early.channel, _ForkedProcess(early.pid)))
        self._forks = can_fork()
        self._stopped = False

    def prepare(self) -> None:
        """Let the fork server load while the agent does something else."""
        if self._forks:
            self._thread.submit(self._running_server)

    def worker(self, owner: int) -> Worker:
        """Start a worker that reads homes as their owner."""
        if self._forks:
            request = ForkRequest("worker", *user_to_become(owner))
            try:
                return Worker(lambda channel: self._fork(request, channel))
            except _NoSuchForkError:
                pass
        return start_worker(owner)

    def path_probe(self) -> ChildProcess:
        """Start the process that looks at paths which may hang."""
        if self._forks:
            try:
                return ChildProcess(lambda channel: self._fork(ForkRequest("path_probe"), channel))
            except _NoSuchForkError:
                pass
        return start_path_probe()

    def _fork(self, request: ForkRequest, channel: socket.socket) -> RunningProcess:
        with self._lock:
            try:
                server = self._thread.submit(self._running_server).result()
                reply = server.fork(request, channel)
            except (WorkerError, TimeoutError) as error:
                self._end_server()
                raise WorkerError(f"cannot start a worker: {error}") from error
        if reply.errno in _NO_SUCH_FORK:
            self._forks = False
            self._end_server()
            log.info("workers start as programs here", error=os.strerror(reply.errno))
            raise _NoSuchForkError
        if reply.errno:
            raise WorkerError(f"cannot start a worker: {os.strerror(reply.errno)}")
        return _ForkedProcess(reply.pid)

    def _running_server(self) -> _ForkServer:
        if self._stopped:
            raise WorkerError("the agent is stopping")
        if self._server is None or self._server.is_gone():
            self._server = _ForkServer(own_program(FORK_SERVER))
        return self._server

    def _end_server(self) -> None:
        server = self._server
        if server is not None:
            server.end()
            server.is_gone(END_WAIT_SECONDS)

    def stop(self) -> None:
        """Start no more: a thread that waits for a start gets an error. Workers stay."""
        if self._stopped:
            return
        self._stopped = True
        self._thread.submit(self._end_server).result()

    def close(self) -> None:
        """Let go of the thread; what was forked ends with it."""
        self._thread.shutdown()


class _NoSuchForkError(Exception):
    """The system does not let the fork server fork."""


class _ForkServer(ChildProcess):
    def fork(self, request: ForkRequest, channel: socket.socket) -> ForkReply:
        """Send the request with the channel of the new process, and return the reply."""
        self.wait_ready()
        try:
            socket.send_fds(self._channel, [pack(FORK, request)], [channel.fileno()])
        except OSError as error:
            raise WorkerError("the fork server is gone") from error
        until = time.monotonic() + _REPLY_SECONDS
        while True:
            for frame in self.receive(until - time.monotonic()):
                from exporter.workers.protocol import decode

                return decode(_REPLY, frame.body)


class _ForkedProcess:
    """A child of this process that the fork server forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return its exit status, as `subprocess` does; None while it runs."""
        with self._lock:
            if self._status is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                if ended:
                    self._status = os.waitstatus_to_exitcode(status)
            return self._status

    def wait(self, timeout: float) -> int:
        """Return its exit status; raise TimeoutExpired if it has not ended by then."""
        until = time.monotonic() + timeout
        pause = _FIRST_PAUSE_SECONDS
        while (status := self.poll()) is None:
            left = until - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired("a forked worker", timeout)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return status

    def kill(self) -> None:
        """Kill it; it is our own child, so its PID is no other process's before `poll` says so."""
        with self._lock:
            if self._status is None:
                os.kill(self.pid, signal.SIGKILL)  # noqa: TID251 - our own worker
