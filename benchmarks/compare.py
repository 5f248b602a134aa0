"""`python -m benchmarks.compare FIRST SECOND`: do two runs agree within their spread?

Each is a file that a run has written (`python -m benchmarks --json FILE`). A ratio agrees if the
medians differ by no more than the ratios of one run do among themselves; a figure without rounds,
such as memory, if it differs by no more than a fifth, which is what CI allows counts to grow.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.line import Line
from benchmarks.report import figure

_SINGLE_FIGURE_SHARE = 1 / 5


class Run(Struct):
    """What is compared of a run."""

    results: dict[str, list[Line]]


def allowed_difference(first: Line, second: Line) -> float:
    """Return by how much two figures of one job may differ."""
    spreads = [
        max(line.rounds.ratios) - min(line.rounds.ratios)
        for line in (first, second)
        if line.rounds is not None
    ]
    single = _SINGLE_FIGURE_SHARE * max(abs(first.achieved), abs(second.achieved))
    return max(spreads, default=single)


def disagreements(first: Run, second: Run) -> Iterator[str]:
    """Yield a sentence for each job that has another figure in the second run, or none."""
    for name, lines in first.results.items():
        others = {line.job: line for line in second.results.get(name, [])}
        for line in lines:
            other = others.get(line.job)
            if other is None or line.error or other.error:
                yield f"{name}: {line.job}: not measured in both runs"
                continue
            allowed = allowed_difference(line, other)
            if abs(line.achieved - other.achieved) > allowed:
                yield (
                    f"{name}: {line.job}: {figure(line.achieved)} and {figure(other.achieved)} "
                    f"differ by more than {figure(allowed)}"
                )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("runs", nargs=2, type=Path, metavar="FILE")
    first, second = (
        msgspec.json.decode(path.read_bytes(), type=Run) for path in parser.parse_args().runs
    )
    found = list(disagreements(first, second))
    jobs = sum(map(len, first.results.values()))
    print(*found, f"{jobs - len(found)} of {jobs} figures agree", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
