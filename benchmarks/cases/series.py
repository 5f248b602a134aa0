"""How many series one home and the agent itself have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks import agent, homes
from benchmarks.line import Line, Setting


def run(setting: Setting) -> Iterator[Line]:
    with agent.running(homes.home(setting.scale), interval="1s") as watched:
        watched.wait_until_ready()
        _, text = watched.get("/metrics")
    series = [line for line in text.splitlines() if not line.startswith("#")]
    of_home = [line for line in series if re.search(r'[{,]home="', line)]
    yield Line("series of a home", len(of_home), 400, unit="series")
    yield Line("series of the agent", len(series) - len(of_home), 60, unit="series")
