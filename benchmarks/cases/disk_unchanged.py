"""A later scan of a home's files when nothing has changed, against `du -sb`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import homes, peers, walking
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import alternate, mean_of

_SCANS = 10


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    walker = walking.first_scan(home)
    rounds = alternate(lambda: mean_of(walker.scan, _SCANS), lambda: peers.du(home), setting.rounds)
    note = "with the rolling re-read of 1/60, two processes"
    yield ratio_line("disk, re-scan, nothing changed", "du -sb", rounds, 0.02, note)
