"""docs/alerts.md, written from the alerts themselves; run it with `make docs`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from dashboards.alerts import GROUPS
from dashboards.alerts.alert import RUNBOOKS

_INTRODUCTION = """\
<!-- Written by `make docs` from dashboards/alerts/; a test fails when it lags. -->
# Alerts

Load both files of `dashboards/rules/` with `rule_files` of Prometheus: `recording.yaml` sums up the
series of all hosts, and the alerts in `alerts.yaml` read those sums. Also:

- the name of the scrape job must contain `hermes-exporter`;
- Prometheus must keep 8 days or more (its default is 15): some alerts compare with a week ago.

Every alert has a severity, a `summary` that is the same for all hosts, a `description` with host,
home and value, a `runbook_url` and a `dashboard_url`. `runbook_url` opens a page of the agent that
the alert is about, `http://INSTANCE/runbooks/NAME`, or of another agent if the alert says that this
one does not answer. (A TLS port redirects such a link to `https://`.) The link works without any
setup if a browser can open the address in `instance`. Set a base for the links

- if agents listen on loopback only, or write a file for node_exporter's textfile collector;
- if `instance` is relabelled to a name without a port, as `deploy/prometheus/relabel.yml` does;
- if agents ask for client certificates that browsers do not have.

Set it in the configuration, then write the file again:

```yaml
alerts:
  runbook_base: https://git.example.org/hermes-exporter/dashboards/runbooks
  dashboard_base: https://grafana.example.org
```

```sh
python -m dashboards.alerts --config.file hermes-exporter.yml >alerts.yaml
```

`--runbook-base` and `--dashboard-base` do the same without a file. Without a checkout of this
repository, change the links with `sed`:

```sh
base=https://git.example.org/hermes-exporter/dashboards/runbooks
sed -e "s|runbook_url: .*/runbooks/\\(Hermes[A-Za-z]*\\).*|runbook_url: '$base/\\1.md'|" \\
    -e "s|'/d/|'https://grafana.example.org/d/|" -i alerts.yaml
```

`critical`: data or conversations are being lost, or homes are not watched; page the person on call.
`warning`: can wait for the next working day. `dashboards/alertmanager/` has an example that routes
alerts this way and silences an alert that only follows from another one.
`dashboards/mixin.libsonnet` has rules, alerts and dashboards as a mixin; its `_config` has
`runbookBase` and `dashboardBase`.

Alerts fire beyond the agent's own limits (`prune.thresholds`, `prune.emergency`),
so the agent can act first. One failed scrape changes nothing: alerts read values over some minutes.
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
