"""The list of benchmarks: every module of `cases/`, by its name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

from benchmarks import cases
from benchmarks.line import Line, Setting


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(cases.__path__))


def purpose(name: str) -> str:
    """Return the first line of a benchmark's own description."""
    described = importlib.import_module(f"{cases.__name__}.{name}").__doc__ or ""
    return described.splitlines()[0]


def run(name: str, setting: Setting) -> list[Line]:
    """Run a benchmark; a failure becomes a line of the report, and the others still run."""
    try:
        measured: Iterable[Line] = importlib.import_module(f"{cases.__name__}.{name}").run(setting)
        return list(measured)
    except Exception as error:  # noqa: BLE001 - whatever it was, the others still run
        return [Line(job=name, achieved=0, limit=0, error=f"{type(error).__name__}: {error}")]
