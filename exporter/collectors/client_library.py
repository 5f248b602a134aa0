"""What is used of prometheus_client, loaded without the rest of it.

The package loads with itself an HTTP server, an HTTP client and what parses mail and HTML: about
2 MB of memory that nothing here uses.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from typing import Final

__all__ = [
    "CollectorRegistry",
    "GCCollector",
    "Metric",
    "PlatformCollector",
    "ProcessCollector",
    "floatToGoString",
]
_PACKAGE: Final = "prometheus_client"


@contextmanager
def _package_not_run() -> Iterator[None]:
    """Let modules of the package be loaded without the package's own code."""
    spec = None if _PACKAGE in sys.modules else find_spec(_PACKAGE)
    if spec is None:
        yield
        return
    sys.modules[_PACKAGE] = module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[_PACKAGE]  # who imports it later gets all of it, with the same classes


with _package_not_run():
    from prometheus_client.gc_collector import GCCollector
    from prometheus_client.metrics_core import Metric
    from prometheus_client.platform_collector import PlatformCollector
    from prometheus_client.process_collector import ProcessCollector
    from prometheus_client.registry import CollectorRegistry
    from prometheus_client.utils import floatToGoString
