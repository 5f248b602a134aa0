"""Processes that are forked differ in nothing from started ones, but in what they cost."""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from exporter.errors import WorkerError
from exporter.snapshot import Trouble
from exporter.workers import protocol, starter
from exporter.workers.early_server import can_fork
from exporter.workers.fork_messages import FORK, ForkReply
from exporter.workers.frames import READY, pack
from exporter.workers.path_prober import PathProber
from exporter.workers.process import ChildProcess, Worker, start_worker
from exporter.workers.starter import Starter
from tests.real.waiting import wait_until
from tests.support.small_homes import small_home

ADA = 54321
ANSWER = """
import os, sys
ready, reply = (bytes.fromhex(word) for word in sys.argv[1:])
os.write(0, ready)
os.read(0, 65536)
os.write(0, reply)
os.read(0, 65536)
"""
"""A fork server that answers one request, always the same."""


@pytest.fixture
def start() -> Iterator[Starter]:
    made = Starter()
    try:
        yield made
    finally:
        made.stop()
        made.close()


def fork_servers() -> list[psutil.Process]:
    found = psutil.Process().children()
    return [child for child in found if "exporter.workers.fork_server" in child.cmdline()]


def memory(pid: int, kind: str) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.findall(rf"^{kind}: +(\d+) kB$", rollup, re.MULTILINE)[0])


def probe(worker: Worker, home: Path) -> None:
    request = protocol.ProbeRequest(home=str(home), owner=os.stat(home).st_uid)
    assert worker.call(protocol.PROBE, request).trouble is Trouble.NONE


def end(*processes: ChildProcess) -> None:
    for process in processes:
        process.end()
        assert process.is_gone(60)


def test_a_forked_worker_is_our_own_child_in_a_session_of_its_own(
    start: Starter, tmp_path: Path
) -> None:
    assert can_fork()
    home = small_home(tmp_path / "home")
    worker = start.worker(os.geteuid())
    probe(worker, home)
    (server,) = fork_servers()
    seen = psutil.Process(worker.pid)
    assert seen.ppid() == os.getpid()
    assert os.getsid(worker.pid) == worker.pid
    assert [word for word in seen.cmdline() if word] == [
        word.replace("fork_server", "worker") for word in server.cmdline()
    ]
    assert worker.alive()
    end(worker)
    assert not worker.alive()


def test_workers_outlive_their_fork_server_and_the_next_gets_a_new_one(
    start: Starter, tmp_path: Path
) -> None:
    home = small_home(tmp_path / "home")
    first = start.worker(os.geteuid())
    probe(first, home)
    (server,) = fork_servers()
    server.kill()
    server.wait(60)
    second = start.worker(os.geteuid())
    probe(first, home)
    probe(second, home)
    assert [found.pid for found in fork_servers()] != [server.pid]
    end(first, second)


def test_what_a_thread_started_outlives_the_thread(start: Starter, tmp_path: Path) -> None:
    """Runs by hand come and go with their threads; the scans go on."""
    started = []
    thread = threading.Thread(target=lambda: started.append(start.worker(os.geteuid())))
    thread.start()
    thread.join()
    (worker,) = started
    probe(worker, small_home(tmp_path / "home"))
    end(worker)


def test_all_end_with_the_starter(tmp_path: Path) -> None:
    made = Starter()
    worker = made.worker(os.geteuid())
    probe(worker, small_home(tmp_path / "home"))
    made.stop()
    assert worker.alive(), "workers are ended one by one, in order"
    with pytest.raises(WorkerError, match="stopping"):
        made.worker(os.geteuid())
    made.close()
    wait_until(lambda: not worker.alive(), "it ends with the thread that started it")
    end(worker)


def test_a_start_that_waits_is_given_up_when_the_agent_stops(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = [sys.executable, "-I", "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(starter, "own_program", lambda *_: silent)
    failures = []

    def wait_for_a_worker() -> None:
        try:
            start.worker(os.geteuid())
        except WorkerError as error:
            failures.append(str(error))

    thread = threading.Thread(target=wait_for_a_worker)
    thread.start()
    wait_until(lambda: start._server is not None, "the fork server is started")
    start.stop()
    thread.join(60)
    assert len(failures) == 1


def answering(reply: ForkReply) -> list[str]:
    words = [word.hex() for word in (pack(READY, None), pack(FORK, reply))]
    return [sys.executable, "-I", "-c", ANSWER, *words]


def test_where_the_system_forks_no_children_for_others_programs_are_started(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = answering(ForkReply(-1, errno.ENOSYS))
    monkeypatch.setattr(starter, "own_program", lambda *_: refused)
    home = small_home(tmp_path / "home")
    worker = start.worker(os.geteuid())
    probe(worker, home)
    prober = PathProber(start.path_probe)
    prober.begin_scan()
    found = prober.inspect(str(home))
    assert found is not None
    assert found.looks_like_home
    assert fork_servers() == []
    prober.close()
    end(worker)


def test_a_host_without_room_for_a_process_says_so(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = answering(ForkReply(-1, errno.EAGAIN))
    monkeypatch.setattr(starter, "own_program", lambda *_: full)
    with pytest.raises(WorkerError, match="cannot start a worker: Resource temporarily"):
        start.worker(os.geteuid())


def test_a_further_owner_costs_half_of_a_program(start: Starter, tmp_path: Path) -> None:
    """The figures for thirty owners are in docs/performance.md."""
    home = small_home(tmp_path / "home")
    forked, program = start.worker(os.geteuid()), start_worker(os.geteuid())
    for worker in (forked, program):
        probe(worker, home)
    private = [memory(worker.pid, "Private_Dirty") for worker in (forked, program)]
    assert private[0] < private[1] / 2
    end(forked, program)


def test_a_forked_worker_of_another_user_is_not_open_to_that_user(start: Starter) -> None:
    worker = start.worker(ADA)
    worker.wait_ready()
    status = Path(f"/proc/{worker.pid}/status").read_text()
    assert re.findall(r"^[UG]id:\s+(.*)$", status, re.MULTILINE) == ["\t".join([str(ADA)] * 4)] * 2
    assert os.stat(f"/proc/{worker.pid}/mem").st_uid == 0, "its memory is not its user's to read"
    end(worker)
