"""The fast stage: real databases, journals and trash; processes, clocks and boots are made up.

Import this module only in a process of its own: it replaces the clocks.
"""

from __future__ import annotations

from tests.trust.made_up_time import MadeUpTime

CLOCK = MadeUpTime()
CLOCK.install()

import gc  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import secrets  # noqa: E402
import shutil  # noqa: E402
import threading  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from exporter import logs  # noqa: E402
from exporter.agent.home_finder import HomeFinder  # noqa: E402
from exporter.agent.manual_prune import PruneCommand  # noqa: E402
from exporter.agent.manual_reap import ReapCommand  # noqa: E402
from exporter.agent.scan_loop import ScanLoop  # noqa: E402
from exporter.agent.service import HostService  # noqa: E402
from exporter.agent.state_store import StateStore, copy_memories  # noqa: E402
from exporter.collectors.render import MetricsRenderer  # noqa: E402
from exporter.config.load import load  # noqa: E402
from exporter.discovery.inspection import Inspection, inspect  # noqa: E402
from exporter.errors import ExporterError  # noqa: E402
from exporter.workers.pool import Pool  # noqa: E402
from tests.trust.database_side import DatabaseSide  # noqa: E402
from tests.trust.made_up_host import FIRST_PID, TICKS, Fault, MadeUpHost, MadeUpWorker  # noqa: E402
from tests.trust.model import Home, Process  # noqa: E402
from tests.trust.observe import Observer  # noqa: E402

HOST = MadeUpHost(CLOCK)
SETTINGS = """
reaper:
  mode: enforce
  max_per_minute: 1000
prune:
  mode: enforce
  caps: {items: 5000, bytes: 10GiB, share: 100%}
  keep: {newest: 2}
  thresholds:
    transcripts: {high: 60KiB, low: 20KiB}
    checkpoints: {high: 60KiB, low: 20KiB}
    state_db_payload: {high: 30KB, low: 10KB}
    empty_sessions: {high: 4, low: 1}
"""
_FILLER = "and so on " * 20


class MadeUpStage:
    """Homes and what happens in them, at the speed of the machine."""

    def __init__(self, folder: Path, templates: dict[str, Path]) -> None:
        self.clock = CLOCK
        self.folder = folder
        self._observer = Observer(folder / "scratch")
        self.homes: list[Home] = []
        self._sides: dict[str, DatabaseSide] = {}
        self._schemas: dict[str, dict[str, set[str]]] = {}
        for number, (version, template) in enumerate(templates.items()):
            path = folder / f"home{number}"
            (path / "sessions").mkdir(parents=True, mode=0o700)
            path.chmod(0o700)
            (path / "checkpoints").mkdir()
            shutil.copy(template, path / "state.db")
            self.homes.append(Home(str(path), version))
            self._sides[str(path)] = DatabaseSide(path)
        config = folder / "settings.yml"
        config.write_text(SETTINGS)
        self.settings = load(str(config))
        HOST.processes = {}
        HOST.next_fault = HOST.fault = HOST.on_check = None
        self.processes = HOST.processes
        self._pids = FIRST_PID
        self.agents = [_Agent(self, "one"), _Agent(self, "two")]

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        for side in self._sides.values():
            side.kill()

    def look(self, home: Home) -> Any:
        return self._observer.look(Path(home.path))

    # Processes

    def start(self, home: Home, kind: str) -> Process:
        made = self.start_without_opening(home, kind)
        self.open_for_all(home)
        return made

    def start_without_opening(self, home: Home, kind: str) -> Process:
        """For a start while the product has its own connection: `open_for_all` comes later."""
        self._pids += 1
        ticks = int(CLOCK.since_boot * TICKS)
        made = Process(self._pids, ticks, kind, home.path, since=CLOCK.true)
        self.processes[made.pid] = made
        return made

    def open_for_all(self, home: Home) -> None:
        if any(p.home == home.path and p.has_database for p in self.processes.values()):
            self._sides[home.path].connect()

    def close_database(self, home: Home) -> None:
        self._sides[home.path].close()

    def end(self, process: Process, *, killed: bool) -> None:
        home = next(each for each in self.homes if each.path == process.home)
        self.processes.pop(process.pid)
        if not any(p.home == home.path and p.has_database for p in self.processes.values()):
            side = self._sides[home.path]
            side.kill() if killed else side.close()

    def reboot(self) -> None:
        for side in self._sides.values():
            side.kill()
        self.processes.clear()
        CLOCK.reboot()

    # Rows

    def write(self, home: Home, *statements: tuple[str, Any]) -> None:
        """What a process writes; one that does not keep the database open has it open meanwhile."""
        side = self._sides[home.path]
        was_open = side.is_open
        side.connect()
        side.run(*statements)
        if not was_open:
            side.close()

    def has(self, home: Home, table: str, column: str) -> bool:
        side = self._sides[home.path]
        was_open = side.is_open
        side.connect()
        found = bool(side.call("has", table, column))
        if not was_open:
            side.close()
        return found

    def add_row(
        self,
        home: Home,
        session_id: str,
        source: str,
        *,
        parent: str | None = None,
        marker: str | None = None,
        title: str | None = None,
    ) -> tuple[str, Any]:
        # A row that an agent makes has this key; a branch has not.
        by_agent = {} if marker == "_branched_from" else {"max_tokens": 4096}
        config = json.dumps({**by_agent, **({marker: parent} if marker else {})})
        row = {
            "id": session_id,
            "source": source,
            "model": "stub-1",
            "model_config": config,
            "system_prompt": f"You are the assistant of {parent or session_id}.",
            "parent_session_id": parent,
            "started_at": CLOCK.wall,
            "message_count": 0,
            "title": title,
        }
        return "sessions", row

    def message(
        self, session_id: str, role: str, token: str, *, summary: bool = False
    ) -> tuple[str, Any]:
        text = f"{token} {_FILLER}"
        if summary:
            text = f"[CONTEXT COMPACTION — REFERENCE ONLY] {text}"
        finish = "stop" if role == "assistant" else None
        row = {"session_id": session_id, "role": role, "content": text, "timestamp": CLOCK.wall}
        return "messages", {**row, "finish_reason": finish}

    def transcript(self, home: Home, session_id: str, token: str, *, dump: bool = False) -> str:
        """A file of a session; return its path below the home."""
        name = f"request_dump_{session_id}_1.json" if dump else f"session_{session_id}.json"
        path = f"sessions/{name}"
        self._write_file(Path(home.path) / path, json.dumps({"session": token}))
        return path

    def checkpoint(self, home: Home, number: int, token: str) -> str:
        """A shadow repository of the old layout, of a working directory that is there."""
        work = self.folder / "work" / f"{number}"
        work.mkdir(parents=True, exist_ok=True)
        path = f"checkpoints/{number:016x}"
        place = Path(home.path) / path
        (place / "objects").mkdir(parents=True, exist_ok=True)
        (place / "refs").mkdir(exist_ok=True)
        self._write_file(place / "HEAD", "ref: refs/heads/main\n")
        self._write_file(place / "HERMES_WORKDIR", f"{work}\n")
        self._write_file(place / "description", token)
        os.utime(place, (CLOCK.wall, CLOCK.wall))
        return path

    def remove_work(self, number: int) -> None:
        shutil.rmtree(self.folder / "work" / f"{number}", ignore_errors=True)

    def _write_file(self, path: Path, text: str) -> None:
        new = path.with_name(f".{path.name}.new")  # another inode: the observer knows files by it
        new.write_text(text)
        os.utime(new, (CLOCK.wall, CLOCK.wall))
        new.replace(path)

    def route(self, home: Home, sessions: list[str]) -> None:
        chats = {f"chat:{each}": {"session_id": each} for each in sessions}
        self._write_file(Path(home.path) / "sessions/sessions.json", json.dumps(chats))

    def plugins(self, home: Home, *, there: bool) -> None:
        folder = Path(home.path) / "plugins" / "mine"
        if there:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "plugin.yaml").write_text("name: mine\n")
            (folder / "__init__.py").write_text("")
        else:
            shutil.rmtree(folder.parent, ignore_errors=True)

    # Backups

    def back_up(self, home: Home) -> None:
        """`hermes backup`, when no process has the database open: it has the journal too."""
        self._settle_wal(home)
        folder = self.folder / f"backup-{Path(home.path).name}"
        folder.mkdir(exist_ok=True)
        for name in ("state.db", ".hermes-exporter/journal.db"):
            if (Path(home.path) / name).exists():
                shutil.copy(Path(home.path) / name, folder / Path(name).name)

    def import_backup(self, home: Home) -> None:
        """`hermes import`: the files are written anew in place."""
        self._settle_wal(home)
        folder = self.folder / f"backup-{Path(home.path).name}"
        for name in ("state.db", ".hermes-exporter/journal.db"):
            kept, file = folder / Path(name).name, Path(home.path) / name
            if kept.exists() and file.parent.exists():
                file.write_bytes(kept.read_bytes())

    def restore(self, home: Home) -> None:
        """A snapshot is restored: a new file takes the place of the database alone."""
        self._settle_wal(home)
        new = self.folder / "restored.db"
        shutil.copy(self.folder / f"backup-{Path(home.path).name}" / "state.db", new)
        (Path(home.path) / "state.db").unlink()
        shutil.move(new, Path(home.path) / "state.db")

    def _settle_wal(self, home: Home) -> None:
        """A killed process has left a WAL; Hermes opens and closes the database first."""
        side = self._sides[home.path]
        side.connect()
        side.close()

    # The product

    def finder(self, store: StateStore) -> HomeFinder:
        homes = [home.path for home in self.homes]
        return HomeFinder(store, named=homes, prober=_Prober())  # type: ignore[arg-type]

    def explain(self, home: Home, session_id: str) -> str:
        """What the first agent thinks of a session, for a person who reads a failure."""
        lines = [f"{each}" for each in self.processes.values() if each.home == home.path]
        for _, session, judgement in self.agents[0].explain(session_id):
            lines += [f"{session}", f"{judgement}"]
        return "\n".join(lines)

    def command(self) -> _Command:
        return _Command(self)


class _Prober:
    """Looks at paths in this process: they do not hang."""

    def begin_scan(self) -> None: ...

    def hangs(self, _: str) -> bool:
        return False

    def inspect(self, path: str, *_: Any, **__: Any) -> Inspection:
        return inspect(path)

    def close(self) -> None: ...


class _Agent:
    """An agent, as `serve` runs it, without its HTTP server."""

    def __init__(self, stage: MadeUpStage, name: str) -> None:
        self._stage = stage
        self._folder = str(stage.folder / f"state-{name}")
        self._counters: dict[str, float] = {}
        self._begin()

    def _begin(self) -> None:
        self._workers: list[MadeUpWorker] = []
        self._store = StateStore.open(self._folder)
        self._metrics = MetricsRenderer(frozenset(), _raise, of_process=False)
        self._loop = ScanLoop(
            self._stage.settings,
            self._store,
            discovery=self._stage.finder(self._store),
            pool=Pool(self._new_worker),  # type: ignore[arg-type]
            survey=HOST.survey,
            file_patterns=self._metrics.file_patterns,
        )

    def knows_since(self, home: str) -> float:
        """When the last of its workers that keeps this home first scanned it."""
        alive = [each for each in self._workers if not each.dead]
        return max((each.first_scan.get(home, 0.0) for each in alive), default=0.0) or float("inf")

    def _new_worker(self, _: Any) -> MadeUpWorker:
        self._workers = [each for each in self._workers if not each.dead]
        self._workers.append(MadeUpWorker(HOST))
        return self._workers[-1]

    def scan(self) -> list[str]:
        """Scan and act; return the counters that fell."""
        view = self._loop.run(60.0)
        for thread in threading.enumerate():
            if thread.name == "prune":
                thread.join(60.0)
        self.up = {home.path: home.up for home in view.homes}
        shown: dict[str, float] = {}
        for line in self._metrics.render(view).text.decode().splitlines():
            name, _, value = line.rpartition(" ")
            if not line.startswith("#") and ("_total{" in name or name.endswith("_total")):
                shown[name] = float(value)
        # One that is no longer shown has not fallen: a source may get a label value of its own.
        fallen = [
            f"{name}: {known} → {shown[name]}"
            for name, known in self._counters.items()
            if shown.get(name, known) < known
        ]
        self._counters |= shown
        return fallen

    def trouble(self, home: Home) -> list[str]:
        states = self._loop.states()
        return [f"{s.trouble} {s.detail}" for s in states if s.home.path == home.path]

    def explain(self, session_id: str) -> list[Any]:
        return self._loop.explain(session_id)

    def restart(self) -> None:
        self.close()
        self._begin()

    def close(self) -> None:
        self._loop.close()
        self._store.close()


class _Command:
    """A command by hand, without an agent's socket."""

    def __init__(self, stage: MadeUpStage) -> None:
        self._stage = stage

    def _do(self, what: Callable[[HostService], Any]) -> Any:
        store = StateStore.in_memory()
        copy_memories(str(self._stage.folder / "state-one"), store)
        loop = ScanLoop(
            self._stage.settings,
            store,
            discovery=self._stage.finder(store),
            pool=Pool(lambda _: MadeUpWorker(HOST)),  # type: ignore[arg-type,return-value]
            survey=HOST.survey,
            every_session=True,
            acting=False,
        )
        try:
            return what(HostService(loop, str(self._stage.folder / "plans")))
        except ExporterError as error:
            return error
        finally:
            loop.close()
            store.close()

    def reap(self, *, presume: bool) -> Any:
        return self._do(lambda host: host.reap(ReapCommand(execute=True, presume=presume)))

    def prune(self, *, by_pressure: bool) -> Any:
        command = PruneCommand(by_pressure=by_pressure, execute=True)
        return self._do(lambda host: host.prune(command, lambda *_: None))

    def undo(self, run: str | None) -> Any:
        return self._do(lambda host: host.undo(run, lambda *_: None))

    def purge(self, run: str | None) -> Any:
        return self._do(lambda host: host.purge(run))

    def history(self) -> list[dict[str, Any]]:
        found = self._do(lambda host: host.history())
        return [] if isinstance(found, ExporterError) else found[0]


def _raise(name: str, error: Exception) -> None:
    raise AssertionError(f"collector {name} failed") from error


def begin(seed: int = 1) -> None:
    """Begin an episode: its clocks, and what the product draws by chance, are always the same."""
    CLOCK.__init__()  # type: ignore[misc]
    gc.freeze()  # what is loaded now lives as long as the process
    logs.setup("error")
    logging.disable(logging.ERROR)
    random.seed(seed)
    chance = random.Random(seed)
    secrets.token_hex = lambda size=None: chance.randbytes(size or 32).hex()  # type: ignore


__all__ = ["HOST", "Fault", "MadeUpStage", "begin"]
