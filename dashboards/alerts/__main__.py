"""Prints the alerts as a rule file for Prometheus.

    python -m dashboards.alerts --config.file hermes-exporter.yml >alerts.yaml
    python -m dashboards.alerts --runbook-base https://wiki.example.org/runbooks >alerts.yaml

Links begin with `alerts.runbook_base` and `alerts.dashboard_base` of that file, or with those of
the command line. Without them runbooks are those of the agents, and dashboards are paths in
Grafana; `make docs` writes `dashboards/rules/alerts.yaml` so.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from dashboards.alerts import GROUPS
from dashboards.alerts.alert import Links, rule_file
from exporter.config.load import load
from exporter.errors import ConfigError

HEADER = """\
# Written by `python -m dashboards.alerts`; change dashboards/alerts/ instead.
#
# Needs recording.yaml beside it. Gauges are read over some minutes: one failed scrape neither
# restarts an alert nor ends it. Alerts fire beyond the agent's own limits, so it can act first.
"""


def rules(links: Links) -> str:
    """The whole file."""
    return HEADER + rule_file(GROUPS, links)


def main(words: list[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m dashboards.alerts", allow_abbrev=False)
    parser.add_argument("--config.file", dest="config_file", metavar="FILE")
    parser.add_argument("--runbook-base", metavar="URL")
    parser.add_argument("--dashboard-base", metavar="URL")
    args = parser.parse_args(words)
    try:
        settings = load(args.config_file).alerts
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    runbook_base = settings.runbook_base if args.runbook_base is None else args.runbook_base
    dashboard_base = settings.dashboard_base if args.dashboard_base is None else args.dashboard_base
    sys.stdout.write(rules(Links(runbook_base, dashboard_base)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
