"""The parts of prometheus_client that a scrape is made with.

The package as a whole also loads its HTTP servers and clients, which takes some megabytes of every
agent and is used by none of it: the agent has a server of its own. So its modules are loaded one by
one here. Whoever asks the package itself for a name gets it whole, as if this had never happened.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any, Final

_PACKAGE: Final = "prometheus_client"


def _open_package() -> None:
    """Make the package's modules importable without running all that it loads at first."""
    spec = find_spec(_PACKAGE)
    if _PACKAGE in sys.modules or spec is None or spec.loader is None:
        return
    package, loader = module_from_spec(spec), spec.loader

    def load_all(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
        if find_spec(f"{_PACKAGE}.{name}") is not None:
            return import_module(f"{_PACKAGE}.{name}")
        vars(package).pop("__getattr__", None)
        loader.exec_module(package)
        return getattr(package, name)

    vars(package)["__getattr__"] = load_all
    sys.modules[_PACKAGE] = package


_open_package()

# After that, and not before.
from prometheus_client.gc_collector import GCCollector  # noqa: E402
from prometheus_client.metrics_core import Metric  # noqa: E402
from prometheus_client.platform_collector import PlatformCollector  # noqa: E402
from prometheus_client.process_collector import ProcessCollector  # noqa: E402
from prometheus_client.registry import CollectorRegistry  # noqa: E402
from prometheus_client.utils import floatToGoString  # noqa: E402

__all__ = [
    "CollectorRegistry",
    "GCCollector",
    "Metric",
    "PlatformCollector",
    "ProcessCollector",
    "floatToGoString",
]
