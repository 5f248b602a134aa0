"""Processor time of an idle agent with a scan every 15 s, against `du -sb` as often."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks import agent, homes, peers, processes
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import Timings

_INTERVAL_SECONDS = 15


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    du = [peers.program("du", "coreutils"), "-sb", str(home)]
    ours, theirs = [], []
    with agent.running(home, interval=f"{_INTERVAL_SECONDS}s") as watched:
        watched.wait_until_ready()
        watched.wait_for_scans(1)
        for _ in range(setting.rounds):
            before = processes.cpu_seconds(watched.pid)
            # In parallel, so that the kernel keeps the same data in memory for both.
            theirs.append(_every_interval(du))
            ours.append(processes.cpu_seconds(watched.pid) - before)
    rounds = Timings(ours, theirs)
    yield ratio_line("processor time at rest", "du -sb every 15 s", rounds, 1 / 50, "every 15 s")


def _every_interval(command: list[str]) -> float:
    """Run a command, wait for the rest of the interval, and return the run's processor time."""
    began = time.monotonic()
    used = processes.command_cpu_seconds(command)
    time.sleep(max(_INTERVAL_SECONDS - (time.monotonic() - began), 0))
    return used
