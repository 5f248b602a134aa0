"""The metrics: one file per family, which registers its collectors when it is imported.

Importing this package imports every module of the folder, so a new file needs no other line.
"""

from __future__ import annotations

import importlib
import pkgutil

from exporter.collectors.registry import Collector, registered

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)


def collectors() -> tuple[Collector, ...]:
    """All collectors, sorted by name."""
    return registered()


def names() -> tuple[str, ...]:
    """The names of all collectors; each has a flag `--collector.NAME`."""
    return tuple(each.name for each in registered())
