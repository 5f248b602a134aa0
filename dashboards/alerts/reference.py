"""docs/alerts.md, written from the alerts themselves; run it with `make docs`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from dashboards.alerts import GROUPS
from dashboards.alerts.alert import RUNBOOKS

_INTRODUCTION = """\
<!-- Written by `make docs` from dashboards/alerts/; a test fails when it lags. -->
# Alerts

`dashboards/rules/` holds two files for the `rule_files` of Prometheus: `recording.yaml` folds the
series of all hosts into few, `alerts.yaml` tells what is wrong. They belong together. Two things
are needed besides:

- the name of the scrape job contains `hermes-exporter`;
- Prometheus keeps 8 days or more (its default is 15): some alerts compare with a week ago.

Every alert has a severity, a `summary` that is the same for all hosts, a `description` with host,
home and value, a `runbook_url` and a `dashboard_url`. What the links begin with is set in the
agent's configuration, from which the file is written anew:

```yaml
alerts:
  runbook_base: https://git.example.org/hermes-exporter/dashboards/runbooks
  dashboard_base: https://grafana.example.org
```

```sh
python -m dashboards.alerts --config.file hermes-exporter.yml >alerts.yaml
```

Where there is no checkout of this repository, the same by hand:

```sh
sed -e "s|'dashboards/runbooks/|'https://git.example.org/hermes-exporter/dashboards/runbooks/|" \\
    -e "s|'/d/|'https://grafana.example.org/d/|" -i alerts.yaml
```

`critical` means that data or conversations are being lost, or that nobody is watching: it should
wake somebody. `warning` can wait for the next working day. `dashboards/alertmanager/` has an
example that routes them so and that silences what is only an echo of another alert;
`dashboards/mixin.libsonnet` gives rules, alerts and dashboards to those who vendor mixins.

Thresholds lie beyond the agent's own marks (`reaper.breaker`, `prune.thresholds`,
`prune.emergency`): what it is about to mend by itself wakes nobody. One failed scrape changes
nothing: values are looked at over some minutes.
"""

_TITLES = {
    "hermes-alerts-agents": "Agents",
    "hermes-alerts-homes": "Homes and their databases",
    "hermes-alerts-sessions": "Sessions",
    "hermes-alerts-disk": "Disk",
    "hermes-alerts-gateways": "Gateways",
    "hermes-alerts-past": "Against days ago",
}


def page() -> str:
    return "".join(_page())


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    for group in GROUPS:
        yield f"\n## {_TITLES[group.name]}\n\n"
        yield "| alert | severity | after | what is wrong |\n| --- | --- | --- | --- |\n"
        for alert in group.alerts:
            link = f"[{alert.name}](../{RUNBOOKS}/{alert.name}.md)"
            yield f"| {link} | {alert.severity} | {alert.hold} | {alert.summary} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
