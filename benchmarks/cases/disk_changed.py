"""A later scan of a home's files after one repo and 20 transcripts changed, against `du -sb`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import homes, peers, walking
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import alternate, timed


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    walker = walking.first_scan(home)
    changes = walking.Changes(home)

    def scan_after_changes() -> float:
        changes.make()
        return timed(walker.scan)

    rounds = alternate(scan_after_changes, lambda: peers.du(home), setting.rounds)
    yield ratio_line("disk, re-scan, a repo and 20 transcripts changed", "du -sb", rounds, 0.03)
    walking.refuse_wrong_figures(home)
