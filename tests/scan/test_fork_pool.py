"""Work shared among forked processes gives the results that one process would."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from exporter.scan.fork_pool import ForkPool

_BEGIN = """
import os, signal, sys
from exporter.scan.fork_pool import ForkPool
pool = ForkPool(2, int)
assert pool.can_fork()
"""


def run(script: str) -> None:
    """Run in a process without threads; that of the tests may have some."""
    subprocess.run([sys.executable, "-c", _BEGIN + script], check=True)


def test_every_job_is_done_once_whatever_their_number() -> None:
    run("""
for jobs in (0, 1, 7, 8, 9, 500, 100_000):
    assert pool.map(jobs, lambda job: job * 3) == {job: job * 3 for job in range(jobs)}
""")


def test_a_job_without_result_is_left_out() -> None:
    run("""
results = pool.map(50, lambda job: job if job % 2 else None)
assert results == {job: job for job in range(50) if job % 2}
""")


def test_both_processes_work() -> None:
    """Each of two jobs ends when the other has begun."""
    run("""
met = [os.pipe(), os.pipe()]
def work(job):
    os.write(met[job][1], b"x")
    os.read(met[1 - job][0], 1)
    return os.getpid()
results = pool.map(2, work)
assert len(set(results.values())) == 2
assert os.getpid() in results.values()
""")


def test_a_child_that_dies_takes_only_its_own_results_along() -> None:
    run("""
parent = os.getpid()
died, dying = os.pipe()
def work(job, waited=[]):
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    if not waited:
        os.close(dying)
        os.read(died, 1)  # ends when the child, which has it too, is dead
        waited.append(job)
    return job
results = pool.map(100, work)
assert os.getpid() == parent
assert 0 < len(results) < 100
assert all(results[job] == job for job in results)
""")


def test_an_error_reaches_the_caller_once_and_leaves_nothing_behind() -> None:
    run("""
parent = os.getpid()
before = os.listdir("/dev/fd")
try:
    pool.map(100, lambda job: job // 0)
except ZeroDivisionError:
    assert os.getpid() == parent
    assert os.listdir("/dev/fd") == before
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        sys.exit(0)
sys.exit(1)
""")


def test_no_child_and_no_descriptor_is_left_behind() -> None:
    run("""
before = os.listdir("/dev/fd")
pool.map(100, lambda job: job)
assert os.listdir("/dev/fd") == before
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    sys.exit(0)
sys.exit(1)
""")


def test_where_no_process_can_be_begun_one_does_all_the_work() -> None:
    """As with a user, or a service, that has reached its limit of processes."""
    run("""
import resource
if os.geteuid() == 0:
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
free = os.open(os.devnull, os.O_RDONLY)
os.close(free)
assert pool.map(50, lambda job: job) == {job: job for job in range(50)}
assert pool.in_child(lambda job: job) is None
assert os.open(os.devnull, os.O_RDONLY) == free
""")


def test_children_end_when_nobody_waits_for_them(tmp_path: Path) -> None:
    """A worker that is killed must not leave its walk behind."""
    script = """
import time
from collections.abc import Callable
from functools import partial
def work(job):
    os.close(os.open(os.path.join(sys.argv[1], str(os.getpid())), os.O_CREAT))
    time.sleep(0.01)
    return job
pool.map(100_000, work)
"""
    worker = subprocess.Popen([sys.executable, "-c", _BEGIN + script, str(tmp_path)])
    wait_until(lambda: len(os.listdir(tmp_path)) == 2)
    worker.kill()
    worker.wait()
    for child in map(int, os.listdir(tmp_path)):
        wait_until(partial(is_gone, child))


def test_a_process_with_threads_is_not_forked() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert not ForkPool(2, int).can_fork()
    finally:
        stop.set()
        thread.join()
    assert not ForkPool(1, int).can_fork()


def is_gone(pid: int) -> bool:
    """True if a process has ended; init may not have collected it yet."""
    try:
        os.kill(pid, 0)
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return True


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_done_aside_is_done_by_a_child_alone() -> None:
    run("assert pool.in_child(lambda _: os.getppid()) == os.getpid()")


def test_what_is_lost_aside_is_not_there() -> None:
    run("assert pool.in_child(lambda _: os._exit(1)) is None")
