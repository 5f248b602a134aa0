"""Real Hermes processes, healthy and maimed, survive being watched and lose nothing by it.

A process that opens and closes its own state.db or -shm as a plain file loses its POSIX locks.
Careless readers then take its WAL away, or kill it; so everything here goes the whole way of a
scan: worker, survey of processes, guard, reading.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from exporter.agent.scan_loop import ScanLoop
from exporter.agent.state_store import StateStore
from exporter.collectors.view import HomeView
from exporter.config.settings import Settings
from exporter.evidence.models import HomeFiles, Survey
from exporter.evidence.survey import survey
from exporter.snapshot import Trouble
from exporter.workers.pool import Pool
from exporter.workers.process import Worker, start_worker
from tests.real.agent import agent
from tests.real.counts import Database
from tests.real.hermes import NEWEST, python_for
from tests.real.holders import Holder, holder, open_carelessly
from tests.real.waiting import wait_until
from tests.support.evidence import lost_locks

OLD = "0.13.0"
SIDECARS = ("state.db", "state.db-wal", "state.db-shm")
QUICK_SURVEY = partial(survey, pause=lambda: time.sleep(0.0005))
"""The real one, which waits less before it believes that a lock is lost."""


class Watch:
    """ScanLoop of scans over some homes, with the workers that make them."""

    def __init__(self, homes: Sequence[Path], **options: object) -> None:
        self.workers: list[Worker] = []
        self._homes = homes
        self._rounds = ScanLoop(
            Settings(),
            StateStore.in_memory(),
            named=[str(home) for home in homes],
            pool=Pool(self._start),
            **options,  # type: ignore[arg-type]
        )

    def _start(self, owner: int) -> Worker:
        worker = start_worker(owner)
        self.workers.append(worker)
        return worker

    def scan(self) -> list[HomeView]:
        """One round; what is known of each home, in the order in which they were given."""
        found = {home.path: home for home in self._rounds.run(60).homes}
        return [found[str(home)] for home in self._homes]

    def close(self) -> None:
        self._rounds.close()


@contextmanager
def watching(*homes: Path, **options: object) -> Iterator[Watch]:
    watch = Watch(homes, **options)
    try:
        yield watch
    finally:
        watch.close()


@contextmanager
def hermes(home: Path, version: str = NEWEST) -> Iterator[Holder]:
    """A Hermes with one session, some of its messages only in the WAL; it must leave in peace."""
    home.mkdir(mode=0o700, exist_ok=True)
    with holder(python_for(version), home) as process:
        process.ask("create", session="a")
        process.ask("append", session="a", count=10)
        yield process
    assert process.process.returncode == 0


def inodes(home: Path) -> dict[str, tuple[int, int]]:
    """Inode and owner of each file of the database that there is."""
    names = (name for name in sorted(os.listdir(home)) if name.startswith("state.db"))
    found = {name: os.lstat(home / name) for name in names}
    return {name: (status.st_ino, status.st_uid) for name, status in found.items()}


def counted_messages(home: HomeView) -> float:
    return sum(counter.value for counter in home.counters if counter.name == "messages")


def messages_on_disk(home: Path, folder: Path) -> int:
    """By sqlite3, after Hermes has written everything back and closed."""
    assert not (home / "state.db-wal").exists()
    return int(Database(home / "state.db", folder).value("SELECT COUNT(*) FROM messages"))


def watch_closely(version: str, folder: Path, rounds: int) -> None:
    """Three holders that write between scans: healthy, without the one lock, without the other."""
    homes = [folder / name for name in ("healthy", "lost-database", "lost-shm")]
    with ExitStack() as stack:
        holders = [stack.enter_context(hermes(home, version)) for home in homes]
        watch = stack.enter_context(watching(*homes, survey=QUICK_SURVEY))
        watch.scan()
        holders[1].ask("lose_database_lock")
        holders[2].ask("lose_shm_lock")
        before = [inodes(home) for home in homes]
        assert all(found.keys() == set(SIDECARS) for found in before)
        for _ in range(rounds):
            for process in holders:
                process.ask("append", session="a")
            healthy, lost_database, lost_shm = watch.scan()
            assert all(process.is_running() for process in holders)
            assert (healthy.trouble, lost_database.trouble) == (Trouble.NONE, Trouble.NONE)
            assert lost_shm.trouble is Trouble.LOCKLESS_SHM_HOLDER
        assert [inodes(home) for home in homes] == before
        assert [process.ask("count", session="a") for process in holders] == [10 + rounds] * 3
        assert counted_messages(healthy) == counted_messages(lost_database) == 10 + rounds
        assert counted_messages(lost_shm) == 10, "the last reading before the lock was lost"
        for view, lost in ((healthy, (0, 0)), (lost_database, (1, 0)), (lost_shm, (0, 1))):
            assert view.evidence is not None
            assert lost_locks(view.evidence) == lost
    assert [messages_on_disk(home, folder) for home in homes] == [10 + rounds] * 3


@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_holders_without_their_locks_survive_a_thousand_scans(version: str, tmp_path: Path) -> None:
    watch_closely(version, tmp_path, rounds=350)


@pytest.mark.full
@pytest.mark.parametrize("version", [NEWEST, OLD])
def test_holders_without_their_locks_survive_thousands_of_scans(
    version: str, tmp_path: Path
) -> None:
    watch_closely(version, tmp_path, rounds=4000)


def test_a_lock_that_is_lost_after_the_survey_still_forbids_the_opening(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with hermes(home) as process:

        def lose_afterwards(targets: Sequence[HomeFiles]) -> Survey:
            found = survey(targets)
            process.ask("lose_shm_lock")
            return found

        with watching(home, survey=lose_afterwards) as watch:
            (view,) = watch.scan()
            assert view.trouble is Trouble.LOCKLESS_SHM_HOLDER
            assert view.evidence is not None
            assert view.evidence.lockless_pids == [], "the survey knew nothing of it"


def test_where_locks_cannot_be_seen_our_way_of_opening_kills_nobody(tmp_path: Path) -> None:
    """No guard at all, beside a holder without its lock on -shm that writes as fast as it can."""
    home = tmp_path / "home"
    with hermes(home) as process:
        process.ask("lose_shm_lock")
        process.ask("start_writing", session="a")
        open_again_and_again(home, 600)
        assert process.ask("stop_writing")["failure"] == ""
        written = process.ask("count", session="a")
    assert messages_on_disk(home, tmp_path) == written


def open_again_and_again(home: Path, times: int) -> None:
    """In a process of its own, without asking anybody; what was read meanwhile may be worthless."""
    script = (
        "import sys\n"
        "from exporter.errors import DatabaseError\n"
        "from exporter.scan.database import StateReader\n"
        "for _ in range(int(sys.argv[2])):\n"
        "    try:\n"
        "        list(StateReader(sys.argv[1]).update(0, lambda: None))\n"
        "    except DatabaseError:\n"
        "        pass\n"
    )
    subprocess.run([sys.executable, "-c", script, home, str(times)], check=True, timeout=250)


@pytest.mark.full
def test_the_usual_way_of_opening_does_kill_such_a_holder(tmp_path: Path) -> None:
    """Why this care is needed: `mode=ro` makes -shm anew under a process that has it mapped."""
    script = (
        "import apsw, os, sys\n"
        "flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI\n"
        "while os.path.exists(f'/proc/{sys.argv[2]}/fd/0'):\n"
        "    connection = apsw.Connection(f'file:{sys.argv[1]}?mode=ro', flags=flags)\n"
        "    connection.execute('SELECT COUNT(*) FROM sessions').get\n"
        "    connection.close()\n"
    )
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with holder(python_for(NEWEST), home) as maimed:
        maimed.ask("create", session="a")
        maimed.ask("append", session="a", count=10)
        maimed.ask("lose_shm_lock")
        maimed.ask("start_writing", session="a")
        command = [sys.executable, "-c", script, str(home / "state.db"), str(maimed.pid)]
        subprocess.run(command, check=False, timeout=250)
    assert maimed.process.returncode == -signal.SIGBUS


def test_a_holder_of_a_deleted_wal_is_counted_and_gets_no_new_one_from_us(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with hermes(home) as process, watching(home) as watch:
        watch.scan()
        process.ask("lose_database_lock")
        open_carelessly(home)
        assert list(inodes(home)) == ["state.db"], "a careless reader took them away"
        before = inodes(home)
        for _ in range(20):
            process.ask("append", session="a")
            (view,) = watch.scan()
            assert inodes(home) == before
        assert view.evidence is not None
        assert view.evidence.deleted_wal_pids == [process.pid]
        assert view.trouble is Trouble.NONE
        assert counted_messages(view) == 10, "what is on disk, and will stay"


def test_metrics_count_the_maimed(tmp_path: Path) -> None:
    """As the operator sees them: the agent, scraped."""
    names = ("healthy", "database", "shm", "deleted")
    homes = [tmp_path / name for name in names]
    with ExitStack() as stack:
        holders = [stack.enter_context(hermes(home)) for home in homes]
        holders[1].ask("lose_database_lock")
        holders[2].ask("lose_shm_lock")
        holders[3].ask("lose_database_lock")
        open_carelessly(homes[3])
        named = json.dumps([{"path": str(home), "name": home.name} for home in homes])
        running = stack.enter_context(
            agent(tmp_path, configuration=f"discover: false\nhomes: {named}\n")
        )
        metrics = running.metrics()
        for name, expected in (
            ("hermes_state_db_lockless_holders", [0, 1, 1, 1]),
            ("hermes_state_db_deleted_wal_holders", [0, 0, 0, 1]),
            ("hermes_home_up", [1, 1, 0, 1]),
        ):
            values = metrics.by(name, "home")
            assert [values[label,] for label in names] == expected, name


def test_a_busy_hermes_is_read_without_its_wal_growing_for_it(tmp_path: Path) -> None:
    """It writes as fast as it can while scan follows scan, and its WAL still starts over.

    Were there always a reader in its way, the WAL would hold all that was ever written.
    """
    home = tmp_path / "home"
    with hermes(home) as process, watching(home) as watch:
        watch.scan()
        before = inodes(home)
        process.ask("start_writing", session="a")
        largest = 0

        def scan_until_the_wal_has_started_over() -> bool:
            nonlocal largest
            (view,) = watch.scan()
            assert view.trouble is Trouble.NONE, view.detail
            largest = max(largest, (home / "state.db-wal").stat().st_size)
            return times_started_over(home) >= 2

        wait_until(scan_until_the_wal_has_started_over, "the WAL starts over")
        assert process.ask("stop_writing")["failure"] == ""
        assert inodes(home) == before
        (view,) = watch.scan()
        assert counted_messages(view) == process.ask("count", session="a")
    assert largest < 16 << 20


def times_started_over(home: Path) -> int:
    """SQLite counts them in the header of the WAL."""
    return int.from_bytes((home / "state.db-wal").read_bytes()[12:16], "big")


def test_no_connection_of_ours_outlives_a_scan(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with hermes(home) as process, watching(home) as watch:
        for _ in range(20):
            process.ask("append", session="a")
            (view,) = watch.scan()
            assert view.trouble is Trouble.NONE
            pids = [worker.pid for worker in watch.workers]
            assert [name for pid in [*pids, os.getpid()] for name in open_files(pid, home)] == []
            assert not lock_owners() & set(pids)
    assert len(pids) == 1


def open_files(pid: int, home: Path) -> list[str]:
    folder = f"/proc/{pid}/fd"
    names = [
        os.readlink(f"{folder}/{number}") for number in os.listdir(folder) if _is_open(pid, number)
    ]
    return [name for name in names if name.startswith(str(home))]


def _is_open(pid: int, number: str) -> bool:
    """Listing a process's own descriptors opens one, which is gone by now."""
    return os.path.lexists(f"/proc/{pid}/fd/{number}")


def lock_owners() -> set[int]:
    """Of all processes of this host; an arrow marks one that only waits for a lock."""
    lines = Path("/proc/locks").read_text().splitlines()
    return {int(line.split()[4]) for line in lines if " -> " not in line}


def kill_if_there(worker: Worker) -> None:
    """The kill before may have come after its scan: then this scan finds the worker dead."""
    with suppress(ProcessLookupError):
        os.kill(worker.pid, signal.SIGKILL)


def test_workers_that_are_killed_in_mid_scan_leave_everything_as_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home"
    chance = random.Random(7)
    with hermes(home) as process, watching(home) as watch:
        watch.scan()
        before = inodes(home)
        for _ in range(15):
            process.ask("append", session="a")
            killer = threading.Timer(chance.uniform(0, 0.01), kill_if_there, (watch.workers[-1],))
            killer.start()
            watch.scan()
            killer.join()
            assert inodes(home) == before
        process.ask("append", session="a")
        (view,) = watch.scan()
        assert view.trouble is Trouble.NONE, view.detail
        assert counted_messages(view) == process.ask("count", session="a") == 26
    assert len(watch.workers) > 1
    assert messages_on_disk(home, tmp_path) == 26
