"""The first scan of a home's files after the kernel's caches were dropped, against `du -sb`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks import homes, peers, walking
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import Stopwatch, alternate, timed

_DROP = Path("/proc/sys/vm/drop_caches")


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    rounds = alternate(
        _cold(lambda: timed(lambda: walking.first_scan(home, processes=1))),
        _cold(lambda: peers.du(home)),
        setting.rounds,
    )
    yield ratio_line("disk, full scan, cold", "du -sb", rounds, 1.15, "one process")


def _cold(job: Stopwatch) -> Stopwatch:
    """Return the same job with empty caches; it needs root, and slows the whole machine down."""

    def after_dropping() -> float:
        os.sync()
        _DROP.write_text("3")
        return job()

    return after_dropping
