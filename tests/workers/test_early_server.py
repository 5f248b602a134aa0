"""A fork server that is forked from this process keeps nothing of it, and forks the workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.hermes import REPOSITORY

SCRIPT = """
import os, signal, sys
from exporter.workers import early_server
inherited = os.open("/dev/null", os.O_RDONLY)
os.set_inheritable(inherited, True)
early = getattr(early_server, sys.argv[1])()
from exporter.workers.starter import Starter
starter = Starter(early)
worker = starter.worker(os.geteuid())
worker.wait_ready()
for pid, module in (early.pid, "fork_server"), (worker.pid, "worker"):
    environment = open(f"/proc/{pid}/environ").read()
    assert "SECRET" not in environment and "PATH=/usr/local" in environment, environment
    shown = open(f"/proc/{pid}/cmdline").read().replace("\\0", " ").strip()
    assert shown == f"{sys.executable} -I -m exporter.workers.{module} {os.getpid()}", shown
    assert open(f"/proc/{pid}/comm").read().strip() == os.path.basename(sys.executable)[:15]
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    opened = [os.readlink(f"/proc/{pid}/fd/{each}") for each in os.listdir(f"/proc/{pid}/fd")]
    assert sum(each == "/dev/null" for each in opened) == 2, opened  # its output and its errors
    assert sum(each.startswith("socket:") for each in opened) == len(opened) - 2, opened
    assert os.getsid(pid) == pid
    status = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    assert int(status[1]) == os.getpid()
os.kill(early.pid, signal.SIGKILL)
while not starter._server.is_gone(10):
    pass
second = starter.worker(os.geteuid())  # from a fork server that is a program
second.wait_ready()
starter.stop()
for each in (worker, second):
    assert each.alive()
    each.end()
    assert each.is_gone(10)
starter.close()
print("done")
"""


@pytest.mark.parametrize("start", ["start_early", "start_loaded"])
@pytest.mark.parametrize("more", [[], ["word"] * 99], ids=["short", "long"])
def test_it_inherits_nothing_and_forks_workers(start: str, more: list[str], tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "s.py", start, *more],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "SECRET": "x"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


NONE = "from exporter.workers import early_server as e; print(e.start_early(), e.start_loaded())"


@pytest.mark.parametrize(
    ("before", "environment"),
    [
        ("import threading as t; t.Thread(target=t.Event().wait, daemon=True).start()", {}),
        ("", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        ("import os; os.uname = lambda: type('_', (), {'machine': 'riscv64'})", {}),
    ],
    ids=["beside a thread", "file names are not UTF-8", "unknown machine"],
)
def test_where_a_fork_would_not_do_a_program_is_left_to_start_later(
    before: str, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{before}\n{NONE}"],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("None None\n", 0), done.stderr
