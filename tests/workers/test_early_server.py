"""A fork server that is started early is as clean as any other, and forks the workers."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.real.hermes import REPOSITORY

SCRIPT = """
import os
from exporter.workers.early_server import start_early
inherited = os.open("/dev/null", os.O_RDONLY)
os.set_inheritable(inherited, True)
early = start_early()
from exporter.workers.starter import Starter
starter = Starter(early)
worker = starter.worker(os.geteuid())
worker.wait_ready()
for pid in (early.pid, worker.pid):
    environment = open(f"/proc/{pid}/environ").read()
    assert "SECRET" not in environment and environment.startswith("PATH="), environment
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    opened = [os.readlink(f"/proc/{pid}/fd/{each}") for each in os.listdir(f"/proc/{pid}/fd")]
    assert sum(each == "/dev/null" for each in opened) == 2, opened  # its output and its errors
    assert os.getsid(pid) == pid
    status = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    assert int(status[1]) == os.getpid()
starter.stop()
assert worker.alive()
worker.end()
assert worker.is_gone(10)
starter.close()
print("done")
"""


def test_it_inherits_nothing_and_forks_workers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=REPOSITORY,
        env={**os.environ, "SECRET": "x"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
