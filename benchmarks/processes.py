"""What processes cost: memory, processor time and system calls of a process and its children."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.peers import program

_CPU_TIME = 2
"""Number of the clock for a process's processor time: Linux combines it with the PID."""


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def pss_mebibytes(pid: int) -> float:
    """Return the memory of a process and its descendants; shared memory counts in proportion."""
    total = 0
    for process in family(pid):
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        found = re.search(r"^Pss: +(\d+) kB$", rollup, re.MULTILINE)
        total += int(found[1]) if found else 0
    return total / 1024


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its descendants, including those that ended."""
    total = 0.0
    for process in family(pid):
        times = process.cpu_times()  # in ticks of 10 ms: too coarse for a scan of an unchanged home
        own = time.clock_gettime(~process.pid << 3 | _CPU_TIME)
        total += own + times.children_user + times.children_system
    return total


def bytes_read(pid: int) -> int:
    """Return the bytes that the living processes requested by read and similar calls."""
    return sum(process.io_counters().read_chars for process in family(pid))


def system_calls(pid: int, seconds: float) -> int:
    """Return the system calls of a process and its descendants within some time, by strace."""
    attach = [argument for process in family(pid) for argument in ("-p", str(process.pid))]
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as counts:
        command = [program("strace", "strace"), "-f", "-c", "-o", counts.name, *attach]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
            time.sleep(seconds)
            tracer.send_signal(signal.SIGINT)
        found = re.search(r"(\d+)(?: +\d+)? total$", counts.read(), re.MULTILINE)
    if found is None:
        raise RuntimeError("strace counted nothing; may it attach to processes here?")
    return int(found[1])


def command_cpu_seconds(command: list[str]) -> float:
    """Return the processor time of one run of a command."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime
