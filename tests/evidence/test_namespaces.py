"""How much of the host a /proc shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from exporter.evidence.models import Blindness
from exporter.evidence.namespaces import blindness, our_processes, pid_namespace
from tests.real.hermes import REPOSITORY
from tests.support.evidence import IN_NEW_PID_NAMESPACE

_ASK = "from exporter.evidence.namespaces import *; import sys; print(*blindness(sys.argv[1]))"


def ask(*wrapper: str, proc: str = "/proc") -> list[str]:
    command = [*wrapper, sys.executable, "-c", _ASK, proc]
    return subprocess.check_output(command, cwd=REPOSITORY, text=True).split()


def test_a_nested_pid_namespace_is_blind_to_the_rest_of_the_host() -> None:
    assert Blindness.PID_NAMESPACE in ask(*IN_NEW_PID_NAMESPACE)


def test_a_container_with_the_hosts_proc_sees_what_the_host_sees() -> None:
    there = ask("unshare", "-p", "-f", "--kill-child")
    assert there == [str(reason) for reason in blindness()]


def test_a_missing_proc_is_reported(tmp_path: Path) -> None:
    assert blindness(str(tmp_path)) == [Blindness.NO_PROC]


def test_a_pid_namespace_has_a_number_and_without_proc_there_is_none(tmp_path: Path) -> None:
    assert pid_namespace() is not None
    assert pid_namespace(str(tmp_path)) is None


_AS_FIRST_PROCESS = """
import os, time
from exporter.evidence.namespaces import our_processes

def forked(run):
    pid = os.fork()
    if not pid:
        run()
        os._exit(0)
    return pid

worker = forked(lambda: time.sleep(600))
reading, writing = os.pipe()
parent = forked(lambda: os.write(writing, b"%d" % forked(lambda: time.sleep(600))))
os.waitpid(parent, 0)
orphan = int(os.read(reading, 20))

def own_pid(pid):
    lines = open(f"/proc/{pid}/status").read().splitlines()
    return next(int(line.split()[-1]) for line in lines if line.startswith("NSpid:"))

own = os.readlink("/proc/self")
children = open(f"/proc/{own}/task/{own}/children").read().split()
assert {own_pid(pid) for pid in children} == {worker, orphan}
print([own_pid(pid) for pid in our_processes("/proc", {worker})] == [worker])
"""


def test_a_process_that_an_agent_in_a_container_inherited_is_not_its_own() -> None:
    """The agent is the first process there and has the host's /proc; Hermes's parent has ended."""
    command = ["unshare", "-p", "-f", "--kill-child", sys.executable, "-c", _AS_FIRST_PROCESS]
    assert subprocess.check_output(command, cwd=REPOSITORY, text=True).strip() == "True"


def test_a_process_that_has_got_the_pid_of_an_ended_worker_is_not_ours() -> None:
    """Its parent tells: what this process starts is its child until it has noted its end."""
    shell = subprocess.run(
        ["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"], capture_output=True, check=True
    )
    other = int(shell.stdout)
    child = subprocess.Popen(["sleep", "600"])
    ended = subprocess.Popen(["true"])
    ended.wait()
    try:
        started = {other, child.pid, ended.pid}
        assert our_processes("/proc", started).keys() == {child.pid, ended.pid}
    finally:
        os.kill(other, signal.SIGKILL)
        child.kill()
        child.wait()
