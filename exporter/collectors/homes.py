"""Whether each home can be read, and the version of Hermes that uses it.

hermes_home_up{home="default"} 1
hermes_agent_info{home="default",version="0.19.0"} 1
"""

from __future__ import annotations

import re
from typing import Final

from exporter.collectors.registry import Samples, collector, gauge
from exporter.collectors.view import HostView
from exporter.snapshot import OTHER

HOME_UP = gauge(
    "hermes_home_up",
    "1 if the last scan read the home's database, or the home has none yet.",
    "home",
)
AGENT_INFO = gauge(
    "hermes_agent_info",
    "The Hermes version seen in this home, where it is known; always 1.",
    "home",
    "version",
    at_most=1,
)

_VERSION: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}[a-z0-9.+-]{0,16}")


@collector("homes", "whether each home can be read", HOME_UP, AGENT_INFO)
def collect(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.known:
            samples.add(HOME_UP, home.up, home.label)
        if home.snapshot is not None and home.snapshot.hermes_version is not None:
            version = home.snapshot.hermes_version
            shown = version if _VERSION.fullmatch(version) else OTHER
            samples.add(AGENT_INFO, 1, home.label, shown)
