"""What pages and commands ask the agent: from memory, or between two scans.

Only the thread that scans may use the workers, so it answers what needs one. A question waits at
most a few seconds for its turn; questions beyond a few are refused, so that no client can keep the
agent from scanning.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from msgspec import structs

from exporter.agent import run_history
from exporter.agent.command_runs import Caller, CommandRuns
from exporter.agent.memory_service import MemoryService, UnwritableError, states_of
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.service import HostService
from exporter.agent.session_list import explained_row, public_id
from exporter.agent.state_store import StateStore
from exporter.agent.trends import trends
from exporter.collectors.view import HostView
from exporter.discovery.homes import Home
from exporter.errors import ExporterError
from exporter.hermes.session_files import is_own_id, possible_ids
from exporter.web.queries import QueryError

T = TypeVar("T")

_WAITING_MAX: Final = 4
_SECONDS: Final = 8.0
_ITEMS_MAX: Final = 1000
_HASHED: Final = "sha256:"
_RUN: Final = re.compile(r"[0-9A-Za-z-]{1,64}")
_SAFE_TARGET: Final = re.compile(
    r"checkpoints(/[0-9a-f]{16}|/legacy-[0-9-]{1,20}|/store)*|[0-9a-f]{16}"
)


class ScannerQueue:
    """Work for the scanner's thread while it waits for its next scan."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._woken = False

    def wake(self) -> None:
        """End the wait: the next scan begins at once."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have this done between two scans; raise QueryError if too much is waiting."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it belongs to the page that asked
                future.set_exception(error)

        with self._changed:
            if len(self._jobs) >= _WAITING_MAX:
                raise QueryError("too many questions at once; try again in a few seconds")
            self._jobs.append(job)
            self._changed.notify_all()
        return future

    def wait(self, seconds: float) -> None:
        """Do what is submitted, until the time is over or `wake` is called."""
        until = time.monotonic() + seconds
        while True:
            with self._changed:
                while not self._jobs and not self._woken:
                    left = until - time.monotonic()
                    if left <= 0:
                        return
                    self._changed.wait(left)
                if self._woken:
                    self._woken = False
                    return
                job = self._jobs.popleft()
            job()
            if time.monotonic() >= until:
                return


class AgentQueries:
    """The `HostQueries` of a running agent, and what its socket needs: memory, workers and runs."""

    def __init__(
        self, loop: ScanLoop, store: StateStore, queue: ScannerQueue, state_dir: str
    ) -> None:
        self._loop = loop
        self._store = store
        self._queue = queue
        self._state_dir = state_dir
        self.listen_addresses: Sequence[str] = ()
        """Where the pages of this agent are."""
        self._view: HostView | None = None
        self._began = self._ended = 0
        self._must_see = 0
        """The scan that shows what the last run by command did."""
        self._events = asyncio.get_running_loop()
        self._scan_ended = asyncio.Event()
        # One thread of its own: a state directory that hangs blocks these pages and nothing else.
        self._reader = ThreadPoolExecutor(1, "trends")
        self._runs = CommandRuns(loop, state_dir)
        self._places = threading.BoundedSemaphore(_WAITING_MAX)

    async def session(self, session_id: str) -> dict[str, Any] | None:
        return await self._between_scans(lambda: self._explain(session_id))

    async def run(self, run: str) -> list[dict[str, Any]] | None:
        if not _RUN.fullmatch(run):
            return None
        return await self._between_scans(lambda: self._show_run(run))

    async def trends(self) -> dict[str, Any]:
        return await self.trends_of([state.home for state in self._loop.states()])

    async def trends_of(self, homes: Sequence[Home], since: float = 0.0) -> dict[str, Any]:
        """Return the figures of these homes over time."""
        # A semaphore: the place is given back by the reader's thread, perhaps long after the client
        # has been told that it takes too long.
        if not self._places.acquire(blocking=False):
            raise QueryError("too many questions at once; try again in a few seconds")
        named = [(home.path, home.label) for home in homes]
        work = self._reader.submit(trends, self._store, named, since)
        work.add_done_callback(lambda _: self._places.release())
        return await _in_time(work)

    async def _between_scans(self, work: Callable[[], T]) -> T:
        return await _in_time(self._queue.submit(work))

    # For the socket

    def scan_begins(self) -> None:
        """Called by the scanner."""
        self._began += 1

    def scan_ended(self, view: HostView) -> None:
        """Called by the scanner."""
        self._view, self._ended = view, self._began
        self._events.call_soon_threadsafe(self._announce)

    def _announce(self) -> None:
        self._scan_ended.set()
        self._scan_ended = asyncio.Event()

    def service(self, uid: int, homes: Sequence[str]) -> MemoryService:
        """Return what this user may ask; raise UnwatchedError if that is nothing."""
        if self._view is None:
            raise QueryError("the first scan is under way")
        return MemoryService(
            self._loop, self._view, self._state_dir, uid, homes, self.listen_addresses
        )

    def homes(self, uid: int, paths: Sequence[str]) -> list[Home]:
        """Return the homes that this user may act on; raise UnwatchedError if there are none."""
        if self._view is None:
            raise QueryError("the first scan is under way")
        found = [state.home for state in states_of(self._loop, self._view, uid, paths)]
        if uid == 0 and paths:  # the operator's word, as --home is without an agent
            found = [structs.replace(home, may_write=not home.problem) for home in found]
        return found

    def refuse_unwritable(self, homes: Sequence[Home]) -> None:
        """Raise UnwritableError if the agent could change nothing in any of them."""
        paths = {home.path for home in homes}
        probes = [state.probe for state in self._loop.states() if state.home.path in paths]
        reasons = [probe.cannot_write if probe is not None else "" for probe in probes]
        if reasons and all(reasons):
            raise UnwritableError(f"the agent cannot write there ({reasons[0]})")

    def start(
        self, uid: int, homes: Sequence[Home], caller: Caller, work: Callable[[HostService], T]
    ) -> Future[T]:
        """Act for a command, in a thread of its own; raise ExporterError if that is too much."""
        return self._runs.start(uid, homes, caller, work)

    def abandon(self, caller: Caller) -> None:
        """The command is gone."""
        self._runs.abandon(caller)

    def scan_soon(self) -> None:
        """Scan and plan now, so that the next command sees what this one did."""
        self._must_see = self._began + 1
        self._loop.check_soon()
        self._queue.wake()

    async def sees_runs(self) -> None:
        """Return when a scan has seen what the last run by command did, or after some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS):
                await self._scanned(self._must_see)

    def close(self) -> None:
        """Stop what is done for commands."""
        self._runs.close()

    async def in_memory(self, work: Callable[[], T]) -> T:
        """Call a function that only reads memory, in a thread."""
        return await asyncio.to_thread(work)

    async def between_scans(self, work: Callable[[], T]) -> T:
        """Call a function that needs a worker, in the scanner's thread."""
        try:
            return await self._between_scans(work)
        except QueryError as error:
            if isinstance(error.__cause__, ExporterError):  # a command tells it as its own
                raise error.__cause__ from None
            raise

    async def next_scan(self) -> None:
        """Scan now, and return when that is done."""
        wanted = self._began + 1  # one that is under way may have read a home already
        self._loop.check_soon()
        self._queue.wake()
        await self._scanned(wanted)

    async def _scanned(self, wanted: int) -> None:
        while self._ended < wanted:
            await self._scan_ended.wait()

    def seen_at(self) -> float:
        """Return when the last scan ended."""
        return self._view.now if self._view is not None else 0.0

    # In the scanner's thread

    def _explain(self, shown_id: str) -> dict[str, Any] | None:
        session_id = self._real_id(shown_id)
        if session_id is None:
            return None
        found = self._loop.explain(session_id)
        return explained_row(*found[0], public=True) if found else None

    def _real_id(self, shown: str) -> str | None:
        """Return the id behind what HTTP shows; a client's own id is only known by its hash."""
        if is_own_id(shown):
            return shown
        if not shown.startswith(_HASHED):
            return None
        for state in self._loop.states():
            for row in state.session_rows(public=False):
                if public_id(row["id"]) == shown:
                    return str(row["id"])
        return None

    def _show_run(self, run: str) -> list[dict[str, Any]] | None:
        try:
            rows = run_history.show_run(self._loop, run, [])
        except ExporterError:
            return None
        for row in rows:
            items = row["items"]
            row["items"] = [
                {**item, "target": public_target(item["target"])} for item in items[:_ITEMS_MAX]
            ]
            row["left_out"] = len(items) - len(row["items"])
        return rows


def public_target(target: str) -> str:
    """Return the target of an action as HTTP may show it: no text that a client chose."""
    folder, slash, name = target.rpartition("/")
    if _SAFE_TARGET.fullmatch(target) or is_own_id(target):
        return target
    if folder in ("", "sessions") and any(is_own_id(each) for each in possible_ids(name)):
        return target
    top = (
        f"{target.partition('/')[0]}/"
        if slash and target.startswith(("sessions/", "checkpoints/"))
        else ""
    )
    return top + public_id(target)


async def _in_time(work: Future[T]) -> T:
    try:
        async with asyncio.timeout(_SECONDS):
            return await asyncio.wrap_future(work)
    except TimeoutError:
        raise QueryError("the agent is scanning; try again in a few seconds") from None
    except ExporterError as error:
        raise QueryError(str(error)) from error
