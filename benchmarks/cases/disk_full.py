"""The first scan of a home's files with warm caches, against `du -sb`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import homes, peers, walking
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import alternate, timed


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    walking.refuse_wrong_figures(home)
    rounds = alternate(
        lambda: timed(lambda: walking.first_scan(home)), lambda: peers.du(home), setting.rounds
    )
    yield ratio_line("disk, full scan, warm", "du -sb", rounds, 0.75, "two processes")
