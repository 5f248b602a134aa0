"""The rules for those who cannot wait."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.dashboards.promtool import RULE_FILES

_CONFIGURATION = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: {rules}
alerting: {{alertmanagers: [{{static_configs: [{{targets: {alertmanagers}}}]}}]}}
scrape_configs:
  - job_name: hermes-exporter
    static_configs: [{{targets: {agents}}}]
"""


def configuration(folder: Path, agents: list[str], alertmanagers: list[str]) -> str:
    """Of a Prometheus that scrapes every second, with the project's own rules in a hurry."""
    return _CONFIGURATION.format(
        rules=json.dumps([str(_hasty(file, folder)) for file in RULE_FILES]),
        agents=json.dumps(agents),
        alertmanagers=json.dumps(alertmanagers),
    )


def _hasty(file: Path, folder: Path) -> Path:
    """A copy in which minutes and hours are seconds, and two leaks are many."""
    text = re.sub(r"\[\d+[mhd]\]", "[5s]", file.read_text())
    text = re.sub(r"^( +)(for|interval): \w+$", r"\1\2: 1s", text, flags=re.MULTILINE)
    text, times = re.subn(r"(hermes_sessions_leaked:sum\[5s\]\)) >= 50", r"\1 >= 2", text)
    assert times == (file.stem == "alerts")
    copy = folder / file.name
    copy.write_text(text)
    return copy
