"""One survey of 200 processes for who holds a database, against psutil's open files."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import psutil

from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import alternate, timed
from exporter.evidence.models import HomeFiles
from exporter.evidence.survey import survey
from exporter.snapshot import FileIdentity

_PROCESSES = 200
_HOLDERS = 10
_FILES_EACH = 8


def run(setting: Setting) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder, _running_processes(Path(folder)):
        database, wal, shm = (_identity(folder, suffix) for suffix in ("", "-wal", "-shm"))
        wanted = HomeFiles(
            key="home", database=database, wal=wal, shm=shm, wal_mode=True, directory=folder
        )
        seen = survey([wanted]).homes["home"]
        if len(seen.holders) != _HOLDERS or seen.lockless_pids:
            raise RuntimeError(f"the survey saw {len(seen.holders)} of {_HOLDERS} holders")
        note = f"{len(psutil.pids())} processes"
        rounds = alternate(
            lambda: timed(lambda: survey([wanted])),
            lambda: timed(_ask_psutil),
            setting.rounds,
        )
    yield ratio_line("evidence pass", "psutil open_files", rounds, 0.3, note)


def _identity(folder: str, suffix: str) -> FileIdentity:
    found = os.stat(f"{folder}/state.db{suffix}")
    return FileIdentity(found.st_dev, found.st_ino)


def _ask_psutil() -> None:
    for process in psutil.process_iter(["pid", "name", "cmdline", "create_time"]):
        with suppress(psutil.Error):
            process.open_files()


@contextmanager
def _running_processes(folder: Path) -> Iterator[None]:
    """Start processes with open files, some of them with a database."""
    for number in range(_FILES_EACH):
        (folder / f"file-{number}").touch()
    _make_database(folder)
    told, tell = os.pipe()
    children = [_fork(folder, tell, holder=number < _HOLDERS) for number in range(_PROCESSES)]
    try:
        os.close(tell)
        for _ in children:
            if not os.read(told, 1):
                raise RuntimeError("a process of the crowd ended early")
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(told)


def _make_database(folder: Path) -> None:
    connection = apsw.Connection(str(folder / "state.db"))
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE sessions(id)")
    connection.close()


def _fork(folder: Path, tell: int, *, holder: bool) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:  # whatever happens, a child must never return from this function
        for number in range(_FILES_EACH):
            os.open(folder / f"file-{number}", os.O_RDONLY)
        if holder:
            connection = apsw.Connection(str(folder / "state.db"))
            connection.execute("SELECT * FROM sessions").fetchall()
        os.write(tell, b".")
        os.close(tell)
        while True:
            signal.pause()
    finally:
        os._exit(1)
