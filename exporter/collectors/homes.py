"""Can each home be read, and which Hermes uses it?

hermes_home_up{home="default"} 1
hermes_agent_info{home="default",version="0.19.0"} 1
"""

from __future__ import annotations

from exporter.collectors.registry import Samples, collector, gauge
from exporter.view import HostView

HOME_UP = gauge(
    "hermes_home_up",
    "1 if the last scan read the home's database, or the home has none yet.",
    "home",
)
AGENT_INFO = gauge(
    "hermes_agent_info",
    "The Hermes version seen in this home, where it can be told; always 1.",
    "home",
    "version",
)


@collector("homes", "whether each home can be read", HOME_UP, AGENT_INFO)
def collect(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.known:
            samples.add(HOME_UP, home.up, home.label)
        if home.snapshot is not None and home.snapshot.hermes_version is not None:
            samples.add(AGENT_INFO, 1, home.label, home.snapshot.hermes_version)
