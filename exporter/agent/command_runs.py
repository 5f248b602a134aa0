"""Runs that a running agent makes for a command: each in its own thread, with its own workers.

A run does what the command would do without an agent, but with the agent's settings and with
evidence that only the agent can see. It waits for no scan, and no scan or scrape waits for it. Its
workers act as the owner of the home, and refuse the same things as without an agent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Final, TypeVar

from exporter.agent.home_finder import ChosenHomes
from exporter.agent.run_history import RunInHome
from exporter.agent.run_messages import RunAnnounced, RunBegins, RunMessage, RunProgress
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.service import HostService
from exporter.agent.shares import Shares
from exporter.agent.state_store import StateStore, copy_memories
from exporter.discovery.homes import Home
from exporter.errors import ExporterError
from exporter.workers.cancellation import Cancellation

T = TypeVar("T")

_RUNS_MAX: Final = 8
_RUNS_PER_USER: Final = 2
_GO_SECONDS: Final = 30.0
"""How long a run that is ready to begin waits for `Caller.go`."""
_PROGRESS_SECONDS: Final = 0.1
"""Least time between two messages about progress."""
_STOP_SECONDS: Final = 5.0
"""How long an agent that stops waits for its runs to reach a safe point."""


class CommandGoneError(ExporterError):
    """The command went away before its run began: nothing was done."""


class Caller:
    """The command at the other end of the socket."""

    def __init__(self, send: Callable[[RunMessage], None]) -> None:
        self._send = send
        self._cancellation = Cancellation()
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._gone = self._closed = False
        self.has_begun = False
        """True once the run may have changed something."""
        self._told_at = 0.0

    # Called by the thread that serves the socket

    def go(self) -> None:
        """The command is ready: its run may begin."""
        self._ready.set()

    def cancel(self) -> None:
        """The person pressed Ctrl-C: the run stops at its next safe point."""
        with self._lock:
            if not self._closed:
                self._cancellation.request()

    def leave(self) -> bool:
        """The command is gone: its run stops at its next safe point.

        Return False if the run has not begun; then it never will.
        """
        self.cancel()
        with self._lock:
            self._gone = True
            self._ready.set()
            return self.has_begun

    def close(self) -> None:
        """The run has ended."""
        with self._lock:
            self._closed = True
            self._cancellation.close()

    # Called by the thread of the run

    @contextmanager
    def acting(self, run: str) -> Iterator[Cancellation]:
        """Wait until the command is ready, then let the run begin; see `manual_run.Acting`."""
        self._send(RunBegins(run))
        self._ready.wait(_GO_SECONDS)
        with self._lock:
            self.has_begun = self._ready.is_set() and not self._gone
        if not self.has_begun:
            raise CommandGoneError("the command went away before its run began")
        yield self._cancellation

    def progress(self, home: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total or now - self._told_at >= _PROGRESS_SECONDS:
            self._told_at = now
            self._send(RunProgress(home, done, total))

    def announce(self, chosen: Sequence[RunInHome], newest: Sequence[RunInHome]) -> None:
        self._send(RunAnnounced(list(chosen), list(newest)))


class CommandRuns:
    """The runs in progress. `start` may be called by one thread only."""

    def __init__(self, loop: ScanLoop, state_dir: str) -> None:
        self._agent = loop
        self._state_dir = state_dir
        self._lock = threading.Lock()
        self._shares = Shares(_RUNS_PER_USER, _RUNS_MAX)
        self._running: dict[Caller, ScanLoop | None] = {}
        self._threads: list[threading.Thread] = []
        self._closing = False

    def start(
        self, uid: int, homes: Sequence[Home], caller: Caller, work: Callable[[HostService], T]
    ) -> Future[T]:
        """Do `work` for a user, in a thread; raise ExporterError if there are too many runs."""
        with self._lock:
            if self._closing:
                raise ExporterError("the agent is stopping")
            if not self._shares.take(uid):
                raise ExporterError(
                    f"the agent acts for {self._shares.total} commands already; "
                    "try again when one of them has finished"
                )
            self._running[caller] = None
        future: Future[T] = Future()
        thread = threading.Thread(
            target=self._run, args=(uid, homes, caller, work, future), name="command", daemon=True
        )
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()
        return future

    def abandon(self, caller: Caller) -> None:
        """The command is gone: its run stops at the next safe point, its scan at once."""
        with self._lock:
            loop = self._running.get(caller)
        if not caller.leave() and loop is not None:
            threading.Thread(target=loop.close, name="abandoned", daemon=True).start()

    def _run(
        self,
        uid: int,
        homes: Sequence[Home],
        caller: Caller,
        work: Callable[[HostService], T],
        future: Future[T],
    ) -> None:
        try:
            with self._service(uid, homes, caller) as service:
                result = work(service)
        except BaseException as error:  # noqa: BLE001 - it belongs to the command that asked
            self._forget(uid, caller)
            future.set_exception(error)
        else:
            self._forget(uid, caller)
            future.set_result(result)

    def _forget(self, uid: int, caller: Caller) -> None:
        with self._lock:
            self._shares.give_back(uid)
            del self._running[caller]

    @contextmanager
    def _service(self, uid: int, homes: Sequence[Home], caller: Caller) -> Iterator[HostService]:
        with closing(StateStore.in_memory()) as store:
            copy_memories(self._state_dir, store)
            loop = ScanLoop(
                self._agent.settings,
                store,
                pool=self._agent.pool_beside(),
                discovery=ChosenHomes(homes),
                every_session=True,
                acting=False,
                counts_usage=False,
            )
            try:
                with self._lock:
                    if self._closing:
                        raise ExporterError("the agent is stopping")
                    self._running[caller] = loop
                yield HostService(loop, self._plans_of(uid))
            finally:
                loop.close()

    def _plans_of(self, uid: int) -> str:
        """Return the folder of this user's printed plans: no user can execute another's plan."""
        return os.path.join(self._state_dir, "users", str(uid)) if uid else self._state_dir

    def close(self) -> None:
        """Stop all runs at their next safe point; end the workers of those that take too long."""
        with self._lock:
            self._closing = True
            running = dict(self._running)
        for caller in running:
            self.abandon(caller)
        until = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        with self._lock:
            left = [loop for loop in self._running.values() if loop is not None]
        for loop in left:
            loop.close()
