"""The agent does not trust workers: a worker that lies costs its own home, and nothing else."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from exporter.agent.auto_reap import AutomaticReaper
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.state_store import StateStore
from exporter.collectors.view import HomeView
from exporter.config.settings import Settings
from exporter.evidence.models import HomeFiles, Survey
from exporter.evidence.survey import survey
from exporter.reaper.models import JudgedSession, Verdict
from exporter.snapshot import (
    DatabaseProbe,
    DiskReport,
    LockAnswer,
    MatchedFiles,
    OpenSession,
    Probe,
    SessionUsage,
    Snapshot,
    Trouble,
    TurnState,
)
from exporter.workers import protocol
from exporter.workers.frames import pack
from exporter.workers.pool import PROCESSES_PER_OWNER_MAX, Pool
from exporter.workers.process import Worker, start_worker
from tests.support.small_homes import small_home

HONEST, LIAR = 54321, 54322


def raw(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


def part(content: object) -> bytes:
    return pack(protocol.PART, content)


NO_FILES = DatabaseProbe("state.db", None, None, None, None, LockAnswer.BLIND)
LOOK = pack(
    protocol.DONE,
    Probe(Trouble.NONE, "", NO_FILES, [], None, [], leases_readable=True, filesystem=None),
)
SNAPSHOT = Snapshot(
    trouble=Trouble.NONE,
    detail="",
    database_present=False,
    health=None,
    sessions=None,
    disk=DiskReport({}, [], complete=True),
    routing_readable=True,
    hermes_version=None,
    cron_ticker_at=None,
    kanban=None,
    message_watermark=0,
)
FLOODED = msgspec.structs.replace(
    SNAPSHOT, matched_files={f"files/{number}": MatchedFiles(1, 1, 1.0) for number in range(257)}
)
READ = part(protocol.ScanReply(SNAPSHOT)) + pack(protocol.DONE, protocol.Plans())
USAGE = part(protocol.UsagePage([SessionUsage(7, "cli", 1, 1, 1, 0, 0, 0)] * protocol.PAGE_ITEMS))
SESSIONS = part(
    protocol.SessionsPage(
        [
            JudgedSession(
                OpenSession(os.urandom(250).hex(), "cli", 1.0, 1.0, True, 1, 1, TurnState.EMPTY),
                Verdict.UNKNOWN,
                (),
            )
            for _ in range(protocol.PAGE_ITEMS)
        ],
        first=False,
    )
)
READY = pack("ready", None)

PROGRAM = """
import os, sys, time
ready, look, answer, repeat = (bytes.fromhex(word) for word in sys.argv[1:])
os.write(0, ready)
os.read(0, 65536)
os.write(0, look)
os.read(0, 65536)
try:
    os.write(0, answer)
    while repeat:
        os.write(0, repeat)
    time.sleep(600)
except OSError:
    pass
"""
"""What it must send: at its start, to the first request, to the second, and for ever."""


class Lie(msgspec.Struct, frozen=True):
    """The messages of a worker."""

    answer: bytes = b""
    look: bytes = LOOK
    ready: bytes = READY
    repeat: bytes = b""

    def tell(self) -> Worker:
        words = [word.hex() for word in (self.ready, self.look, self.answer, self.repeat)]
        return Worker([sys.executable, "-I", "-c", PROGRAM, *words])


LIES = {
    "nothing at all": Lie(),
    "no answer to the look": Lie(look=b""),
    "noise": Lie(look=b"\x00\x00\x00\x09not json!"),
    "noise at the start": Lie(ready=b"\xff" * 100),
    "a frame without end": Lie(look=(2**20).to_bytes(4) + b"x", repeat=b""),
    "a frame too long": Lie(look=(2**20 + 1).to_bytes(4)),
    "a huge frame": Lie(look=b"\xff\xff\xff\xff", repeat=b"\xff" * 65536),
    "an empty frame": Lie(look=raw(b"")),
    "deep nesting": Lie(look=raw(b"done\n" + b"[" * 500_000)),
    "another type": Lie(look=pack(protocol.DONE, {"look": 7})),
    "an unknown name": Lie(look=pack("exec", {"path": "/etc/passwd"})),
    "the end before the beginning": Lie(look=READ),
    "an answer to another question": Lie(answer=LOOK),
    "the answer of a path probe": Lie(answer=pack("inspect", {"number": 1})),
    "a part where there are none": Lie(look=USAGE + LOOK),
    "a plan that was not wished for, and no reading": Lie(answer=pack(protocol.DONE, None)),
    "a long part": Lie(answer=raw(b"part\n" + b" " * 2**20)),
    "too many in a page": Lie(
        answer=part(protocol.UsagePage([SessionUsage(1, "cli", 1, 1, 1, 0, 0, 0)] * 101))
    ),
    "a negative count": Lie(
        answer=part(protocol.UsagePage([SessionUsage(1, "cli", -1, 1, 1, 0, 0, 0)]))
    ),
    "a word too long": Lie(
        answer=part(protocol.UsagePage([SessionUsage(1, "c" * 129, 1, 1, 1, 0, 0, 0)]))
    ),
    "a key that no database can hold": Lie(
        answer=part(protocol.UsagePage([SessionUsage(2**63, "cli", 1, 1, 1, 0, 0, 0)])) + READ
    ),
    "files of more patterns than there can be": Lie(answer=part(protocol.ScanReply(FLOODED))),
    "usage for ever": Lie(repeat=USAGE),
    "sessions for ever": Lie(repeat=SESSIONS),
    "a failure": Lie(answer=pack(protocol.FAILED, protocol.Failure("no"))),
}


@contextmanager
def rounds(homes: list[Path], lie: Lie, seconds: float = 3.0) -> Iterator[ScanLoop]:
    """A ScanLoop in which the worker of one owner lies, with this time limit for an answer."""
    journal = StateStore.in_memory()
    running = ScanLoop(
        Settings(),
        journal,
        named=[str(home) for home in homes],
        pool=Pool(lambda owner: lie.tell() if owner == LIAR else start_worker(owner)),
        probe_seconds=seconds,
        read_seconds=seconds,
        acting=False,
    )
    try:
        yield running
    finally:
        running.close()
        journal.close()


@pytest.fixture
def homes() -> Iterator[dict[int, Path]]:
    """Make one home for each of two users, where both can reach their own."""
    with tempfile.TemporaryDirectory(prefix="hermes-exporter-test-") as folder:
        os.chmod(folder, 0o755)
        made = {}
        for owner in (HONEST, LIAR):
            made[owner] = small_home(Path(folder, str(owner)))
            for path in [made[owner], *made[owner].iterdir()]:
                os.chown(path, owner, owner)
        yield made


def views(running: ScanLoop, homes: dict[int, Path], patience: float) -> dict[int, HomeView]:
    by_path = {view.path: view for view in running.run(patience).homes}
    return {owner: by_path[str(home)] for owner, home in homes.items()}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_worker_that_lies_costs_only_its_home(homes: dict[int, Path], lie: Lie) -> None:
    with rounds(list(homes.values()), lie) as running:
        for _ in range(2):
            seen = views(running, homes, patience=30)
            assert seen[HONEST].up
            assert sum(counter.value for counter in seen[HONEST].counters) == 6
            assert not seen[LIAR].up
            assert seen[LIAR].trouble in (Trouble.WORKER_DIED, Trouble.TIMEOUT, Trouble.IO_ERROR)


def test_nobody_waits_for_a_home_that_is_slow(homes: dict[int, Path]) -> None:
    """A scan ends when its time is up, and the slow home is still busy at the next scan."""
    with rounds(list(homes.values()), Lie(), seconds=600.0) as running:
        running._pool.worker(HONEST, str(homes[HONEST])).wait_ready()
        assert views(running, homes, patience=8)[HONEST].up
        began = time.monotonic()
        scans = [views(running, homes, patience=100)[HONEST].scanned_at for _ in range(3)]
        assert len(set(scans)) == 3
        assert time.monotonic() - began < 100
        assert [state.home.owner for state in running._scheduler.busy()] == [LIAR]


def test_many_homes_that_hang_take_no_turn_from_the_others(homes: dict[int, Path]) -> None:
    """Two users have more such homes than there were ever threads to wait for them."""
    hostile = [LIAR, LIAR + 1]
    hanging: list[tuple[int, str]] = []
    for owner in hostile:
        for number in range(40):
            home = homes[HONEST].parent / f"{owner}-{number}"
            home.mkdir()
            os.chown(home, owner, owner)
            hanging.append((owner, str(home)))
    silent = Lie(look=b"")
    started: list[int] = []

    def start(owner: int) -> Worker:
        started.append(owner)
        return silent.tell() if owner in hostile else start_worker(owner)

    pool, journal = Pool(start), StateStore.in_memory()
    named = [path for _, path in hanging] + [str(homes[HONEST])]
    running = ScanLoop(Settings(), journal, named=named, pool=pool, probe_seconds=60.0)
    for owner, path in hanging:
        pool.make_dedicated(owner, path)
    pool.worker(HONEST, str(homes[HONEST])).wait_ready()
    try:
        for _ in range(2):
            up = {view.path: view.up for view in running.run(10.0).homes}
            assert up.pop(str(homes[HONEST]))
            assert len(up) == 80
            assert not any(up.values())
        assert max(started.count(owner) for owner in hostile) <= PROCESSES_PER_OWNER_MAX
    finally:
        running.close()
        journal.close()


def test_a_worker_may_falsify_its_own_home(homes: dict[int, Path]) -> None:
    with rounds(list(homes.values()), Lie(answer=READ)) as running:
        seen = views(running, homes, patience=30)
        assert seen[LIAR].up
        assert seen[LIAR].snapshot == SNAPSHOT
        assert seen[HONEST].snapshot != SNAPSHOT


def test_where_many_homes_were_set_apart_those_that_are_well_go_back(tmp_path: Path) -> None:
    """After a stall homes have their own processes; these must not accumulate."""
    homes = [small_home(tmp_path / f"home{number}") for number in range(11)]
    pool, journal = Pool(), StateStore.in_memory()
    running = ScanLoop(Settings(), journal, named=[str(home) for home in homes], pool=pool)
    for home in homes:
        pool.make_dedicated(os.geteuid(), str(home))
    try:
        for _ in range(2):
            assert all(home.up for home in running.run(60).homes)
            assert len(pool.dedicated_homes()[os.geteuid()]) == 8
    finally:
        running.close()
        journal.close()


def test_a_home_with_a_worker_of_its_own_costs_no_second_survey(tmp_path: Path) -> None:
    """A survey reads every process of the host. It is taken once, also if no home can be read."""
    home = small_home(tmp_path / "home")
    pool, journal, taken = Pool(), StateStore.in_memory(), list[int]()

    def count(targets: Sequence[HomeFiles]) -> Survey:
        taken.append(len(targets))
        return survey(targets, ours=pool.pids)

    running = ScanLoop(Settings(), journal, named=[str(home)], pool=pool, survey=count)
    try:
        for dedicated in (False, True):
            if dedicated:
                pool.make_dedicated(os.geteuid(), str(home))
            assert running.run(60).homes[0].up
        assert len(taken) == 2
        assert all(taken)
        shutil.rmtree(home)
        assert not running.run(60).homes[0].up
        assert taken[2:] == [0]
    finally:
        running.close()
        journal.close()


def test_thousands_of_open_connections_do_not_keep_workers_from_being_heard(
    homes: dict[int, Path],
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        with rounds([homes[HONEST]], Lie()) as running:
            assert running.run(30).homes[0].up
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_what_a_scan_saw_is_acted_on_by_the_worker_that_saw_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new worker does not know which sessions were used after a reap, and would heal nothing."""
    home = small_home(tmp_path / "home")
    pool, now, acted = Pool(), [time.time()], list[int]()
    store = StateStore.in_memory()
    loop = ScanLoop(Settings(), store, named=[str(home)], pool=pool, clock=lambda: now[0])

    def worker() -> int:
        return pool.worker(home.stat().st_uid, str(home)).pid

    monkeypatch.setattr(AutomaticReaper, "act", lambda *_: acted.append(worker()))
    with closing(store), closing(loop):
        loop.run(60.0)
        first = worker()
        now[0] += 400 * 86400.0  # it is time for another worker
        loop.run(60.0)
        assert acted == [first, first]
        assert worker() != first
