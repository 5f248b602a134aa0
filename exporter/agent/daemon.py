"""The agent: a thread that scans, an event loop that serves HTTP, and the signal handlers."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NoReturn

import apsw
import msgspec

from exporter import __version__, logs
from exporter.agent import status
from exporter.agent.command_socket import CommandSocket, open_listener
from exporter.agent.host_queries import AgentQueries, ScannerQueue
from exporter.agent.options import Options
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.state_file import StateLock, state_lock
from exporter.agent.state_store import StateStore
from exporter.agent.systemd import ScanDeadline, ServiceManager
from exporter.agent.trends import TrendRecorder
from exporter.collectors.render import MetricsRenderer
from exporter.collectors.view import HostView
from exporter.config import paths
from exporter.config.load import load
from exporter.config.paths import own_socket
from exporter.config.settings import Settings
from exporter.errors import ExporterError, StateUsedError, error_location
from exporter.web.accept_failures import AcceptFailures
from exporter.web.published import Published
from exporter.web.response import Packed, pack
from exporter.web.routes import Routes
from exporter.web.security import WebSecurity
from exporter.web.server import serve as serve_http
from exporter.web.web_config import WebConfigFile
from exporter.workers.early_server import EarlyServer
from exporter.workers.privilege import trim_heap
from exporter.workers.starter import Starter

_THREAD_SWITCH_SECONDS: Final = 0.00002
"""How long a scan may keep the interpreter lock while a scrape waits."""
_SHORTEST_PAUSE_SECONDS: Final = 0.2
_M_ARENA_MAX: Final = -8
_EXIT_SECONDS: Final = 15.0
"""How long the agent waits for its threads at its end; well below systemd's own timeout."""

log = logs.get("agent")


def serve(options: Options, server: EarlyServer | None = None) -> int:
    """Run until SIGTERM or SIGINT; `server` is the fork server, if this thread has started it."""
    sys.setswitchinterval(_THREAD_SWITCH_SECONDS)
    gc.freeze()  # objects loaded so far stay: no garbage collection has to visit them
    _share_one_heap()
    file = find_config_file(options)
    settings = load(file)
    with state_lock(options.state_dir) as lock:
        store = StateStore.open(options.state_dir)
        try:
            return asyncio.run(_serve(options, settings, store, lock, file, server))
        finally:
            store.close()


def _share_one_heap() -> None:
    """Let all threads take memory from one heap: glibc would give each thread its own.

    Python runs one thread at a time, so they would gain nothing by that.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def find_config_file(options: Options) -> str | None:
    """Return the configuration to read: the one that was named, or the system's if there is one."""
    if options.config_file is not None or not options.looks_for_config:
        return options.config_file
    file = paths.SYSTEM_CONFIG_FILE
    if os.access(file, os.R_OK):
        return file
    if os.path.lexists(file):
        log.warn("configuration cannot be read as this user; the defaults hold", file=file)
    return None


async def _serve(
    options: Options,
    settings: Settings,
    store: StateStore,
    lock: StateLock,
    config_file: str | None,
    server: EarlyServer | None,
) -> int:
    return await _Agent(options, settings, store, lock, server).run(config_file)


def _has_ended(thread: threading.Thread) -> bool:
    thread.join(_EXIT_SECONDS)
    return not thread.is_alive()


class _Agent:
    def __init__(
        self,
        options: Options,
        settings: Settings,
        store: StateStore,
        lock: StateLock,
        server: EarlyServer | None,
    ) -> None:
        self._options = options
        self._store = store
        self._lock = lock
        self._published = Published()
        file = options.web_config_file
        self._security = WebSecurity(
            None if file is None else WebConfigFile(file), options.allowed_hosts
        )
        self._metrics = MetricsRenderer(options.disabled_collectors, self._collector_failed)
        self._loop = ScanLoop(
            settings,
            store,
            named=options.homes,
            starter=Starter(server),
            file_patterns=self._metrics.file_patterns,
        )
        self._changes = logs.StateChange()
        self._packed: tuple[list[tuple[str, int]], Packed] | None = None
        self._service = ServiceManager.from_environment()
        self._scan_deadline = ScanDeadline()
        self._queue = ScannerQueue()
        self._queries = AgentQueries(self._loop, store, self._queue, options.state_dir)
        self._trends = TrendRecorder(store, time.monotonic)
        self._started_at = time.time()
        self._stopping = False
        self._exit_status = 0
        self._end: Callable[[], object] = lambda: None
        """Ends the agent, from any thread."""

    async def run(self, config_file: str | None) -> int:
        loop = asyncio.get_running_loop()
        AcceptFailures(loop)
        stop = asyncio.Event()
        self._end = partial(loop.call_soon_threadsafe, stop.set)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        self._publish(HostView((), __version__, (), True, time.time()), ready=False)
        routes = Routes(
            self._published,
            telemetry_path=self._options.telemetry_path,
            reload=self.reload if self._options.enable_lifecycle else None,
            queries=self._queries,
        )
        server = await serve_http(self._options.listen_addresses, routes, security=self._security)
        self._queries.listen_addresses = server.addresses
        for address in server.addresses:
            log.info(
                "listening",
                address=address,
                tls="on" if self._security.speaks_tls else "off",
                version=__version__,
                config=config_file or "defaults",
                **self._modes(),
            )
        commands = await self._listen_to_commands()
        scanner = threading.Thread(target=self._scan, name="scanner", daemon=True)
        scanner.start()
        self._service.ready()
        alive = asyncio.create_task(self._service.send_watchdog(self._scan_deadline))
        await stop.wait()
        log.info("stopping")
        self._service.stopping()
        alive.cancel()
        self._stopping = True
        self._queue.wake()
        if commands is not None:
            commands.close()
        await server.drain()
        ended = threading.Thread(target=self._stop, args=(scanner,), name="end", daemon=True)
        ended.start()
        if not await asyncio.to_thread(_has_ended, ended):
            self._exit_without_threads()
        if commands is not None:
            await commands.drain()
        return self._exit_status

    async def _listen_to_commands(self) -> CommandSocket | None:
        """Open the socket for commands; without it they scan by themselves."""
        path = self._options.agent_socket
        path = own_socket() if path is None else path
        if not path:
            return None
        try:
            commands = CommandSocket(self._queries, path)
            await commands.listen(open_listener(path))
        except OSError as error:
            log.warn("no socket for commands", path=path, error=error.strerror or str(error))
            return None
        return commands

    def _stop(self, scanner: threading.Thread) -> None:
        self._queries.close()
        self._loop.close()
        scanner.join()

    def _exit_without_threads(self) -> NoReturn:
        """Exit without waiting for threads that hang: the interpreter would wait for ever.

        Usage that they did not write is counted by the next agent, as after a crash.
        """
        log.warn(
            "the state directory does not answer; exiting without waiting for it",
            directory=self._options.state_dir,
        )
        os._exit(0)

    # The scanner's thread

    def _scan(self) -> None:
        while not self._stopping:
            began = time.monotonic()
            interval = self._loop.settings.scan.interval_seconds
            self._scan_deadline.expect(interval)
            self._queries.scan_begins()
            self._loop.web_config_in_use = not self._security.problem
            try:
                self._lock.take_again_if_gone()
                if self._store.write_anew_if_gone():
                    log.warn(
                        "the state file was moved away or deleted; it is written anew from memory",
                        file=self._store.path,
                    )
                self._leave_damaged_state()
                view = self._loop.run(timeout_seconds=interval)
                self._publish(view, ready=all(home.known for home in view.homes))
                self._queries.scan_ended(view)  # the pages know it before a command is told
                self._trends.record(view)
                trim_heap()
                self._changes.changed("scan", "fine")
            except StateUsedError as error:
                # The directory was deleted, and another agent has made it anew: that one goes on.
                log.error("ending", error=str(error))
                self._exit_status = 1
                self._end()
                return
            except Exception as error:  # noqa: BLE001 - a failed scan must not end the agent
                if not self._stopping and self._changes.changed("scan", repr(error)):
                    self._log_failed_scan(error)
            spent = time.monotonic() - began
            if self._loop.has_old_figures():
                interval = 0.0  # the next scan completes what is known of them
            pause = max(_SHORTEST_PAUSE_SECONDS, interval - spent)
            self._scan_deadline.expect(pause)
            self._queue.wait(pause)

    def _leave_damaged_state(self) -> bool:
        """If the state file was damaged, go on in memory and say so; True if so."""
        if not self._store.leave_if_damaged():
            return False
        if not self._store.is_whole:
            self._loop.replace_workers()
        log.error(
            "state is damaged; going on in memory",
            file=self._store.path,
            error=self._store.damage,
            counters="kept" if self._store.is_whole else "begin again",
            fix="move it away; the next scan writes a new one",
        )
        return True

    def _log_failed_scan(self, error: Exception) -> None:
        if isinstance(error, apsw.Error) and self._leave_damaged_state():
            return
        if isinstance(error, apsw.Error):
            log.error("state cannot be used", file=self._store.path, error=str(error))
        else:
            log.error("scan failed", error=error_location(error))

    def _publish(self, view: HostView, *, ready: bool) -> None:
        was_ready = self._published.content.ready
        self._published.publish(
            metrics=self._metrics.render(view),
            status=msgspec.json.encode(
                status.status(
                    view,
                    self._loop.settings,
                    public=True,
                    by_agent=True,
                    started_at=self._started_at,
                )
            ),
            sessions=self._sessions(),
            runs=msgspec.json.encode(status.last_runs(view)),
            ready=ready or was_ready,
        )

    def _sessions(self) -> Packed:
        """Return the session list for HTTP. It is compressed again only if it has changed: it can
        be long.
        """
        revision = [state.sessions_revision for state in self._loop.states()]
        if self._packed is None or self._packed[0] != revision:
            self._packed = (revision, pack(self._session_parts()))
        return self._packed[1]

    def _session_parts(self) -> Iterator[bytes]:
        separator = b"["
        for state in self._loop.states():
            for row in state.session_rows(public=True):
                yield separator + msgspec.json.encode(row)
                separator = b",\n"
        yield b"[]\n" if separator == b"[" else b"]\n"

    def _collector_failed(self, name: str, error: Exception) -> None:
        if self._changes.changed(("collector", name), repr(error)):
            log.error("collector failed", collector=name, error=error_location(error))

    def _modes(self) -> dict[str, str]:
        """Return the modes: do the reaper and the pruner act in any home?"""
        return status.modes(self._loop.settings)

    # Reloading

    def _on_hangup(self) -> None:
        threading.Thread(target=self._try_reload, name="reload", daemon=True).start()

    def _try_reload(self) -> None:
        try:
            self.reload()
        except ExporterError:
            pass  # reload has logged it; the old settings stay in use

    def reload(self) -> None:
        """Read the configuration again; a bad one is logged and changes nothing."""
        self._service.reloading()
        try:
            self._reload()
        finally:
            self._service.ready()

    def _reload(self) -> None:
        try:
            file = find_config_file(self._options)
            self._loop.settings = load(file)
        except ExporterError as error:
            self._loop.config_reload_successful = False
            log.error("configuration not reloaded", error=str(error))
            self._queue.wake()
            raise
        self._loop.config_reload_successful = True
        log.info("configuration reloaded", file=file or "defaults", **self._modes())
        self._queue.wake()
