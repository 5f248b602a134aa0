"""System calls to scan an unchanged home are proportional to its repositories, not its files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.real.waiting import wait_until
from tests.support.small_homes import small_home

_REPOS = 120
_FILES = 30

SCANS = """
import os, sys
from exporter.workers import protocol
from exporter.workers.home import WorkerHome

def bytes_read():
    return next(int(line.split()[1]) for line in open("/proc/self/io") if line[:6] == "rchar:")

home, scans, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
reader, watermark = WorkerHome(home), 0
for number in range(scans):
    if number == first:
        before = bytes_read()
    reader.probe(os.getuid())
    request = protocol.ScanRequest(
        home=home, owner=os.getuid(), openable=["state.db"], holders=[], quiet=False,
        watermark=watermark, excluded_profiles=["work"], trivial_max_messages=5,
        marathon_max_messages=200, marathon_near_ratio=0.85, stale_after_seconds=1e6,
        full_interval_seconds=21600, every_session=False, walk_disk=True,
    )
    *_, reply = reader.read(request)
    watermark = reply.snapshot.message_watermark
print(bytes_read() - before, len(open("/proc/self/mountinfo").read()))
"""
FIRST, LAST = 4, 24
"""The scans before the first are not idle: they load modules and read the home."""
CALLS_MAX = 1.2 * 327
BYTES_MAX = 1.2 * 242
"""What an idle scan of `ordinary_home` took when this was last looked at, and a fifth more.

Counts, not times: they are the same on every machine. The bytes are those beside one reading of the
table of mounts, which is as long as the machine has mounts.
"""


def system_calls(home: Path, scans: int, folder: Path) -> int:
    """Return all system calls of a process that scans this home this many times."""
    summary = folder / f"calls-{scans}"
    command = ["strace", "-f", "-c", "-o", str(summary), sys.executable, "-c", SCANS]
    subprocess.run(
        [*command, str(home), str(scans), "0"],
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
    )
    total = re.search(r"^\s*100\.00\s+\S+\s+(?:\S+\s+)?(\d+)\s.*total$", summary.read_text(), re.M)
    assert total is not None, summary.read_text()
    return int(total[1])


def calls_per_idle_scan(home: Path, folder: Path) -> float:
    calls = system_calls(home, LAST, folder) - system_calls(home, FIRST, folder)
    return calls / (LAST - FIRST)


def settle(home: Path) -> None:
    """Wait until the home is unchanged for a while: a folder that just changed is read again."""
    changed = max(os.stat(parent).st_ctime for parent, _, _ in os.walk(home))
    wait_until(lambda: time.time() - changed > 3, "the folders are no longer new")


def add_objects(repo: Path, numbers: range) -> None:
    """Add files as git keeps its objects: in folders by the first two digits of their names."""
    for number in numbers:
        folder = repo / "objects" / f"{number % 256:02x}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:038x}").write_bytes(b"x")


def test_calls_follow_the_repositories_and_not_their_files(tmp_path: Path) -> None:
    home = tmp_path / "home"
    repos = [home / "checkpoints" / f"{number:016x}" for number in range(_REPOS)]
    for repo in repos:
        add_objects(repo, range(_FILES))
        (repo / "HEAD").write_text("ref: refs/heads/main\n")
        (repo / "HERMES_WORKDIR").write_text(f"{tmp_path}\n")
    settle(home)
    few_files = calls_per_idle_scan(home, tmp_path)
    for repo in repos:
        add_objects(repo, range(_FILES, 4 * _FILES))
    settle(home)
    many_files = calls_per_idle_scan(home, tmp_path)
    assert few_files < 10 * _REPOS + 300
    assert many_files - few_files < _REPOS * 3 * _FILES / 10


def bytes_per_idle_scan(home: Path) -> float:
    """Return what an idle scan reads, beside one reading of the table of mounts.

    In a mount namespace of its own: what others mount meanwhile would lengthen that table.
    """
    command = ["unshare", "-m", sys.executable, "-c", SCANS, str(home), str(LAST), str(FIRST)]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    total, mounts = map(int, done.stdout.split())
    return total / (LAST - FIRST) - mounts


def ordinary_home(home: Path) -> Path:
    """Make a home with some of everything."""
    small_home(home, sessions=50)
    for number in range(100):
        (home / "sessions" / f"session_{number}.json").write_text("{}")
    for number in range(40):
        repo = home / "checkpoints" / f"{number:016x}"
        add_objects(repo, range(20))
        (repo / "HEAD").write_text("ref: refs/heads/main\n")
        (repo / "HERMES_WORKDIR").write_text(f"{home}\n")
    (home / "logs").mkdir()
    (home / "logs" / "agent.log").write_text("started\n")
    (home / "config.yaml").write_text("model: {default: x}\n")
    return home


def test_an_idle_scan_costs_no_more_than_it_did(tmp_path: Path) -> None:
    home = ordinary_home(tmp_path / "home")
    settle(home)
    assert calls_per_idle_scan(home, tmp_path) <= CALLS_MAX
    assert bytes_per_idle_scan(home) <= BYTES_MAX
