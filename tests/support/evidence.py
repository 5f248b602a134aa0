"""Real processes that hold databases in good and bad ways, and surveys by other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from exporter.evidence.models import HomeEvidence, HomeFiles, Survey
from exporter.evidence.procfs import ProcessStat, read_stat
from exporter.evidence.survey import survey
from exporter.snapshot import FileIdentity, GatewayFiles
from tests.real.hermes import REPOSITORY

NOBODY = 65534
IN_NEW_PID_NAMESPACE = ("unshare", "-p", "-f", "--mount-proc", "--kill-child")

_PUPPET = """
import fcntl, os, sqlite3, subprocess, sys
def connect(path, mode="wal"):
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode={mode}")
    connection.execute("CREATE TABLE IF NOT EXISTS t (n)")
    connection.execute("INSERT INTO t VALUES (1)")
    connection.commit()
    return connection
def touch(path):
    os.close(os.open(path, os.O_RDONLY))
def fork():
    until_parent_ends, parent_lives = os.pipe()
    child = os.fork()
    if not child:
        os.close(parent_lives)
        os.read(until_parent_ends, 1)
        os._exit(0)
    return child
print("ready", flush=True)
for line in sys.stdin:
    try:
        answer = eval(line)
    except SyntaxError:
        answer = exec(line)
    print(repr(answer), flush=True)
"""

_SURVEY_ELSEWHERE = """
import ctypes, os, sys, msgspec
from exporter.evidence.models import HomeFiles
from exporter.evidence.survey import survey
proc, uid, hold = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
targets = msgspec.json.decode(sys.stdin.buffer.read(), type=list[HomeFiles])
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
held = []
try:
    while hold:
        held.append(os.open("/", os.O_PATH))
except OSError:
    os.close(held.pop())
found = survey(targets, proc=proc)
sys.stdout.buffer.write(msgspec.json.encode(found))
"""


class Puppet:
    """A process that runs Python line by line; `_PUPPET` shows which names it has."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid
        assert self._answer() == "ready"

    def do(self, line: str) -> str:
        """Run the line there and return the repr of its result."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._answer()

    def become(self, *command: str) -> None:
        """Replace it by another program, under the same PID; that program must print `ready`."""
        assert self.do(f"os.execv({command[0]!r}, {list(command)!r})") == "ready"

    def stat(self) -> ProcessStat:
        found = read_stat("/proc", self.pid)
        assert found is not None
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the puppet has ended"
        return line.strip()


def puppet(
    *arguments: str,
    script: Path | None = None,
    wrapper: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> Puppet:
    """Start a puppet. With `script` its command line is `python SCRIPT ARGUMENTS`."""
    command = [sys.executable, "-c", _PUPPET, *arguments]
    if script is not None:
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(_PUPPET)
        command = [sys.executable, str(script), *arguments]
    process = subprocess.Popen(
        [*wrapper, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], **(environment or {})},
        cwd="/",
    )
    return Puppet(process)


def hermes(home: Path, *arguments: str) -> Puppet:
    """Start a puppet that looks like `hermes ARGUMENTS`."""
    return puppet(*arguments, script=home.parent / "bin" / "hermes")


def identity(path: Path) -> FileIdentity | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return FileIdentity(found.st_dev, found.st_ino)


def files(home: Path, gateway: GatewayFiles | None = None, wal_mode: bool = True) -> HomeFiles:
    """Return what a worker would report about a home now."""
    return HomeFiles(
        key=str(home),
        database=identity(home / "state.db"),
        wal=identity(home / "state.db-wal"),
        shm=identity(home / "state.db-shm"),
        wal_mode=wal_mode,
        gateway=gateway,
        directory=str(home),
    )


def evidence(home: Path, wal_mode: bool = True) -> HomeEvidence:
    return survey([files(home, wal_mode=wal_mode)]).homes[str(home)]


def lost_locks(found: HomeEvidence) -> tuple[int, int]:
    """How many holders have lost their lock on the database, and on -shm; it must be visible."""
    assert found.sees_locks
    holders = found.holders
    return sum(h.lockless_database for h in holders), sum(h.lockless_shm for h in holders)


def survey_elsewhere(
    targets: Sequence[HomeFiles],
    *,
    user: int = 0,
    proc: str = "/proc",
    wrapper: Sequence[str] = (),
    hold_descriptors: bool = False,
) -> Survey:
    """Return a survey by another process: as another user, or in another namespace.

    With `hold_descriptors` it has one free descriptor left.
    """
    done = subprocess.run(
        [
            *wrapper,
            sys.executable,
            "-c",
            _SURVEY_ELSEWHERE,
            proc,
            str(user),
            str(int(hold_descriptors)),
        ],
        input=msgspec.json.encode(targets),
        stdout=subprocess.PIPE,
        check=True,
        cwd=REPOSITORY,
    )
    return msgspec.json.decode(done.stdout, type=Survey)


@contextmanager
def holding(home: Path) -> Iterator[Puppet]:
    """Run a process that has the home's database open in WAL mode, as Hermes has."""
    home.mkdir(exist_ok=True)
    with puppet() as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        yield process
