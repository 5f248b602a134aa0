"""Scan one home as a worker does, and check that the scan leaves no trace."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.evidence.openers import KnownHolder
from exporter.snapshot import (
    MessageHistogram,
    OpenSession,
    Probe,
    SessionSummary,
    SessionUsage,
    Snapshot,
)
from exporter.workers import protocol
from exporter.workers.frames import FrameReader, pack
from exporter.workers.home import WorkerHome
from tests.real.hermes import Hermes
from tests.real.holders import Holder, obedient_process

Trace = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Scan:
    """One scan of a home: everything that the worker sent."""

    look: Probe
    usage: list[SessionUsage]
    sessions: list[OpenSession]
    snapshot: Snapshot

    @property
    def summary(self) -> SessionSummary:
        assert self.snapshot.sessions is not None, self.snapshot.detail
        return self.snapshot.sessions


def scan(
    reader: WorkerHome,
    home: Path,
    *,
    owner: int | None = None,
    watermark: int = 0,
    holders: Sequence[KnownHolder] = (),
    openable: Sequence[str] = ("state.db",),
    quiet: bool = False,
) -> Scan:
    """Probe and read; every part is encoded and decoded, so that its limits apply too."""
    uid = home.stat().st_uid if owner is None else owner
    look = reader.probe(uid)
    request = read_request(
        home, uid, watermark=watermark, holders=holders, openable=openable, quiet=quiet
    )
    usage: list[SessionUsage] = []
    sessions: list[OpenSession] = []
    for part in reader.read(request):
        match over_the_wire(part):
            case protocol.UsagePage(items):
                usage += items
            case protocol.SessionsPage(items):
                sessions += [judged.session for judged in items]
            case protocol.ScanReply(snapshot):
                return Scan(look, usage, sessions, snapshot)
    raise AssertionError("a reading ends with a snapshot")


def read_request(
    home: Path,
    owner: int,
    *,
    watermark: int = 0,
    holders: Sequence[KnownHolder] = (),
    openable: Sequence[str] = ("state.db",),
    quiet: bool = False,
) -> protocol.ScanRequest:
    return protocol.ScanRequest(
        home=str(home),
        owner=owner,
        openable=list(openable),
        holders=list(holders),
        quiet=quiet,
        watermark=watermark,
        excluded_profiles=[],
        trivial_max_messages=5,
        marathon_max_messages=200,
        marathon_near_ratio=0.85,
        stale_after_seconds=14 * 86400.0,
        full_interval_seconds=6 * 3600.0,
        every_session=True,
        walk_disk=True,
    )


def over_the_wire(part: protocol.ScanPart) -> protocol.ScanPart:
    """Return what the agent decodes; raise as the agent does if it cannot."""
    return protocol.SCAN.decode_part(through_frame(protocol.PART, part))


def through_frame(name: str, message: object) -> bytes:
    (frame,) = FrameReader().feed(pack(name, message))
    return frame.body


def trace(home: Path) -> Trace:
    """Return every file of the database: inode, owner, kind, mode, size and bytes."""
    found: Trace = {}
    for name in sorted(os.listdir(home)):
        if name.startswith("state.db"):
            status = os.lstat(home / name)
            identity = (status.st_ino, status.st_uid, status.st_gid, status.st_mode, status.st_size)
            found[name] = (*identity, status.st_mtime_ns, _content(home / name, status.st_mode))
    return found


def _content(path: Path, mode: int) -> str:
    if stat.S_ISREG(mode):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return os.readlink(path) if stat.S_ISLNK(mode) else ""


def sql(home: Path, script: str) -> str:
    """Run statements on a home's database with the sqlite3 program; the database is cold after."""
    done = subprocess.run(
        ["sqlite3", "-bail", home / "state.db"],
        input=script,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode != 0 or done.stderr:
        raise AssertionError(done.stderr)
    return done.stdout.strip()


def python(script: str, *arguments: str | Path) -> None:
    """Run a script in its own process, as needed for anything that opens a database."""
    command = ["python3", "-c", script, *map(str, arguments)]
    subprocess.run(command, check=True, timeout=60)


def counted(histograms: Sequence[MessageHistogram]) -> dict[str, tuple[int, int]]:
    """Return sessions and messages by source."""
    return {each.source: (sum(each.buckets), each.sum) for each in histograms}


@contextmanager
def rewriter(hermes: Hermes, home: Path) -> Iterator[Holder]:
    """Run a holder that can also do what `inside/rewrite.py` has."""
    with obedient_process(hermes.command("rewrite"), hermes, home) as running:
        yield running
