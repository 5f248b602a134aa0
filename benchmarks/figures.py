"""The last figures of each benchmark and scale, kept in the repository.

`make bench` replaces those that it measured. docs/performance.md is made from them.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from benchmarks.line import Line, Setting
from benchmarks.measure import Timings

FIGURES = Path(__file__).parent / "figures"


class Machine(Struct, frozen=True):
    """Where something was measured."""

    cores: int
    kernel: str
    python: str
    load: float
    """Average number of running processes over a minute, at the end: what else was going on."""

    @classmethod
    def here(cls) -> Machine:
        return cls(
            os.cpu_count() or 0,
            ".".join(platform.release().split(".")[:2]),
            platform.python_version(),
            round(os.getloadavg()[0], 1),
        )


class Measured(Struct, frozen=True):
    """One benchmark at one scale."""

    day: str
    rounds: int
    machine: Machine
    lines: list[Line]


Figures = dict[str, Measured]
"""By name of the benchmark."""


def load(scale: float) -> Figures:
    """Return the last figures of this scale; none if it was never measured."""
    try:
        return msgspec.json.decode(_file(scale).read_bytes(), type=Figures)
    except FileNotFoundError:
        return {}


def keep(results: dict[str, list[Line]], setting: Setting) -> None:
    """Replace the figures of what was measured now; failures replace nothing."""
    kept = load(setting.scale)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    for name, lines in results.items():
        if not any(line.error for line in lines):
            short = [structs.replace(line, rounds=_rounded(line)) for line in lines]
            kept[name] = Measured(day, setting.rounds, Machine.here(), short)
    _file(setting.scale).parent.mkdir(exist_ok=True)
    ordered = dict(sorted(kept.items()))
    content = msgspec.json.format(msgspec.json.encode(ordered), indent=1)
    _file(setting.scale).write_bytes(content + b"\n")


def _rounded(line: Line) -> Timings | None:
    if line.rounds is None:
        return None
    return Timings(
        *([float(f"{each:.4g}") for each in side] for side in (line.rounds.ours, line.rounds.peer))
    )


def _file(scale: float) -> Path:
    return FIGURES / f"scale-{scale:g}.json"
