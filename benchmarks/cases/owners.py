"""Memory for each further owner of homes: thirty users, each with a worker of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import agent, peers, processes
from benchmarks.line import Line, Setting
from exporter.demo import home as demo

_FIRST_UID = 60_001
_OWNERS = 30
_SCANS = 3
_LIMIT_MEBIBYTES = 8.0


def run(_: Setting) -> Iterator[Line]:
    if os.geteuid() != 0:
        raise RuntimeError("only root can make homes of thirty users")
    with tempfile.TemporaryDirectory(prefix="hermes-exporter-bench-") as folder:
        os.chmod(folder, 0o755)
        pattern = Path(demo.make(folder, now=time.time()))
        shutil.rmtree(pattern / "profiles")  # one home each
        made = [_copy(pattern, Path(folder), _FIRST_UID + number) for number in range(_OWNERS)]
        one, all_of_them = measure(made[:1]), measure(made)
    yield Line(
        "memory for each further owner of homes",
        achieved=(all_of_them - one) / (_OWNERS - 1),
        limit=_LIMIT_MEBIBYTES,
        unit="MiB",
        note=f"PSS; {one:.0f} MiB with one owner, {all_of_them:.0f} MiB with {_OWNERS}",
    )


def _copy(pattern: Path, folder: Path, uid: int) -> Path:
    """Make a home that belongs to this user alone."""
    above = folder / f"user{uid}"
    above.mkdir(mode=0o700)
    shutil.copytree(pattern, above / ".hermes", symlinks=True)
    for path in (above, *above.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
    return above / ".hermes"


def measure(made: list[Path]) -> float:
    """Return the PSS in MiB of an agent that watches these homes, at rest after some scans."""
    with agent.running(*made, interval="5s", python=peers.ours()) as ours:
        ours.wait_until_ready()
        ours.wait_for_scans(_SCANS)
        ours.scan_every("1h")  # no walk and no plan is under way then
        return processes.pss_mebibytes(ours.pid)
