"""The metrics: one file per family, which registers its collectors when it is imported.

`collectors` imports every module of the folder, so a new file needs no other line. A command that
only needs labels or views imports none of them, and no client library.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.collectors.registry import Collector


def collectors() -> tuple[Collector, ...]:
    """All collectors, sorted by name."""
    _import_all()
    from exporter.collectors.registry import registered

    return registered()


@cache
def _import_all() -> None:
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
