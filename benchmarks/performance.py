"""docs/performance.md, made from the figures that are kept (`benchmarks.figures`).

`python -m benchmarks.performance` makes it anew without measuring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from benchmarks import figures
from benchmarks.figures import Figures
from benchmarks.line import Line, Verdict
from benchmarks.plot import Point, growth_plot
from benchmarks.report import figure

_REPOSITORY = Path(__file__).parent.parent
PAGE = _REPOSITORY / "docs" / "performance.md"
_IMAGES = _REPOSITORY / "docs" / "images"
_EXPERIMENTS = Path(__file__).parent / "experiments.md"
_SCALES = (0.1, 1.0, 10.0)

_HEAD = """# Performance

`make bench` measures this and writes this page. Times are ratios to a peer that ran on the same
machine in the same minutes, in alternating rounds; the median counts. Below 1 is faster than the
peer.
"""
_METHOD = """## How it is measured

- `make bench` runs everything at scale 1, the size found in the field: 10,000 sessions (3,564
  empty, 29% open), 242,000 messages in a state.db of 960 MB, 5,000 transcripts (420 MB), 1,100
  checkpoint repositories with 172,000 files in 126,000 folders. `make bench ARGS='--scale 0.1'` has
  a tenth of it, scale 10 ten times as much. The homes are invented and made once, in
  `.cache/bench`.
- Each round times our job and the peer's job one after the other, so that other load of the machine
  meets both. The first round warms the caches and does not count. The spread is that of the ratio
  over the rounds; two runs agree if their medians differ by no more than that, and figures without
  rounds by no more than a fifth (`python -m benchmarks.compare FIRST SECOND`, with
  what `--json FILE` wrote).
- Peers are what a user would run today: `du`, the sqlite3 program, psutil, the server of
  prometheus_client, query-exporter, Hermes's own prune, and `hermes sessions stats`.
- Targets are for scales 1 and 10. A smaller database is read whole at every change, which takes
  milliseconds and makes every figure exact.
- Memory is PSS: of memory that processes share each counts its part. Other programs of the same
  Python, running meanwhile, take over a part of its libraries: up to 11 MiB less than alone.
- In CI no time is checked, only counts: the system calls and the bytes read of an idle scan may not
  grow by more than a fifth (`tests/scan/test_home_idle_calls.py`).
"""


def write() -> None:
    """Write the page and its plots."""
    kept = {scale: figures.load(scale) for scale in _SCALES}
    for name, content in plots(kept).items():
        (_IMAGES / name).write_text(content)
    PAGE.write_text(page(kept))


def page(kept: Mapping[float, Figures]) -> str:
    parts = [_HEAD, *_expect(kept), _METHOD]
    parts += [
        f"## Figures at scale {scale:g}\n\n{_table(found, judged=scale >= 1)}"
        for scale, found in sorted(kept.items(), key=lambda item: item[0] != 1)
        if found
    ]
    drawn = plots(kept)
    if drawn:
        images = "\n".join(f"![{_title(name)}](images/{name})" for name in drawn)
        parts.append(f"## Growth\n\n{images}\n")
    parts.append(_EXPERIMENTS.read_text())
    return "\n".join(parts)


def _title(name: str) -> str:
    return name.removeprefix("growth-").removesuffix(".svg").replace("-", " ")


def _expect(kept: Mapping[float, Figures]) -> Iterator[str]:
    """Yield what an operator should expect on a small host, as far as it was measured."""
    facts = list(_facts(kept.get(1.0, {})))
    if facts:
        said = "\n".join(f"- {fact}" for fact in facts)
        yield f"## What to expect on a small host\n\nWith one home of scale 1:\n\n{said}\n"


def _facts(found: Figures) -> Iterator[str]:
    if line := _line(found, "memory", "memory of agent and workers"):
        yield f"{line.achieved:.0f} MiB of memory for the agent and all its processes"
    if line := _line(found, "owners", "memory for each further owner of homes"):
        yield f"{line.achieved:.1f} MiB for each further owner of homes ({line.note})"
    if line := _line(found, "idle_cpu", "processor time at rest"):
        used = _ours(line) if line.rounds else f"{line.note.partition(' to ')[0]} ms"
        yield f"at rest: {used} of processor time for a scan every 15 s"
    if line := _line(found, "database_first", "database, first full pass"):
        yield f"the first pass over a state.db of 960 MB: {_ours(line)}; it is read once"
    if line := _line(found, "disk_full", "disk, full scan, warm"):
        yield f"the first walk over 172,000 checkpoint files: {_ours(line)}, warm"
    if line := _line(found, "scrape", "scrape, p99"):
        yield f"a scrape, p99 with 8 clients that never pause: {_ours(line)}"


def _line(found: Figures, benchmark: str, job: str) -> Line | None:
    lines = found[benchmark].lines if benchmark in found else []
    return next((line for line in lines if line.job.startswith(job)), None)


def _ours(line: Line) -> str:
    if line.rounds is None:
        return f"{figure(line.achieved)} {line.unit}".rstrip()
    seconds = median(line.rounds.ours)
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _table(found: Figures, *, judged: bool) -> str:
    """Return all lines; targets hold from the size of the field on."""
    machines = sorted(
        {
            f"{m.machine.cores} cores, Linux {m.machine.kernel}, Python {m.machine.python}"
            for m in found.values()
        }
    )
    days = sorted({measured.day for measured in found.values()})
    loads = [measured.machine.load for measured in found.values()]
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    rows = [
        f"Measured on {' and '.join(machines)}, {when}.",
        f"Load at the end of each: {min(loads):g} to {max(loads):g}.",
        "",
        "| job | peer | target | achieved | spread | | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows += [_row(line, judged=judged) for measured in found.values() for line in measured.lines]
    return "\n".join((*rows, ""))


def _row(line: Line, *, judged: bool) -> str:
    target = f"{'≥' if line.at_least else '≤'} {figure(line.limit)} {line.unit}".rstrip()
    achieved = f"{figure(line.achieved)} {line.unit}".rstrip()
    spread = ""
    if line.rounds is not None:
        ratios = line.rounds.ratios
        spread = f"{figure(min(ratios))} to {figure(max(ratios))}"
    met = "" if line.verdict is Verdict.MET or not judged else f"**{line.verdict}**"
    return f"| {line.job} | {line.peer} | {target} | {achieved} | {spread} | {met} | {line.note} |"


_CURVES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "growth-first-readings.svg": (
        "first readings",
        {
            "database": ("database_first", "ours"),
            "sqlite3 program": ("database_first", "peer"),
            "checkpoints": ("disk_full", "ours"),
            "du -sb": ("disk_full", "peer"),
        },
    ),
    "growth-later-scans.svg": (
        "scans after the first",
        {
            "database, unchanged": ("database_unchanged", "ours"),
            "database, 100 messages": ("database_changed", "ours"),
            "checkpoints, unchanged": ("disk_unchanged", "ours"),
        },
    ),
}
"""By plot: its title, and for each curve the benchmark and the side of it."""


def plots(kept: Mapping[float, Figures]) -> dict[str, str]:
    """Return the plots by file name; one needs two scales at least."""
    drawn: dict[str, str] = {}
    for name, (title, wanted) in _CURVES.items():
        curves = {label: _times(kept, *source) for label, source in wanted.items()}
        whole = {label: points for label, points in curves.items() if len(points) > 1}
        if whole:
            drawn[name] = growth_plot(title, "ms", whole)
    memory = [
        (scale, line.achieved)
        for scale, found in kept.items()
        if (line := _line(found, "memory", "memory of agent and workers"))
    ]
    if len(memory) > 1:
        drawn["growth-memory.svg"] = growth_plot("memory", "MiB", {"agent and workers": memory})
    return drawn


def _times(kept: Mapping[float, Figures], benchmark: str, side: str) -> list[Point]:
    """Return the median time in milliseconds by scale."""
    found: list[Point] = []
    for scale, measured in kept.items():
        line = _line(measured, benchmark, "")
        if line is not None and line.rounds is not None:
            found.append((scale, 1000 * median(getattr(line.rounds, side))))
    return found


if __name__ == "__main__":
    write()
