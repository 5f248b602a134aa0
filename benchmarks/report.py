"""The results as a table for people and as JSON for comparisons."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.line import Line, Setting, Verdict

RESULTS = Path(__file__).parent / "results"
_COLOURS = {Verdict.MET: "green", Verdict.MISSED: "yellow", Verdict.FAILED: "red"}


def show(results: dict[str, list[Line]], console: Console) -> None:
    """Print the table of targets and results."""
    table = Table(title="hermes-exporter beside its peers")
    for heading in ("benchmark", "job", "peer", "target", "achieved", "verdict", "note"):
        table.add_column(heading, justify="right" if heading in ("target", "achieved") else "left")
    for name, lines in results.items():
        for line in lines:
            colour = _COLOURS[line.verdict]
            table.add_row(
                name,
                line.job,
                line.peer,
                f"{'≥' if line.at_least else '≤'} {figure(line.limit)} {line.unit}".rstrip(),
                f"{figure(line.achieved)} {line.unit}".rstrip(),
                f"[{colour}]{line.verdict}[/]",
                line.error or line.note,
            )
    console.print(table)


def save(results: dict[str, list[Line]], setting: Setting, path: Path | None = None) -> Path:
    """Write all figures, with every round, and where they were measured."""
    place = path or RESULTS / time.strftime("%Y%m%d-%H%M%S.json")
    place.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "setting": setting,
        "machine": {
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load": os.getloadavg(),
        },
        "results": {
            name: [msgspec.to_builtins(line) | {"verdict": line.verdict} for line in lines]
            for name, lines in results.items()
        },
    }
    place.write_bytes(msgspec.json.format(msgspec.json.encode(content)))
    return place


def figure(value: float) -> str:
    """Return a number with three digits, or whole if it is large."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
