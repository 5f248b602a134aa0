"""The mixin, evaluated with a real jsonnet: what it gives is what is generated."""

from __future__ import annotations

import json
from typing import Any

import _gojsonnet  # type: ignore[import-not-found]
import yaml

from dashboards.alerts.__main__ import rules
from dashboards.alerts.alert import Links
from tests.real.hermes import REPOSITORY

DASHBOARDS = REPOSITORY / "dashboards"


def evaluate(expression: str) -> Any:
    code = f"local mixin = import '{DASHBOARDS / 'mixin.libsonnet'}'; {expression}"
    return json.loads(_gojsonnet.evaluate_snippet("test", code))


def test_it_has_every_dashboard() -> None:
    files = sorted((DASHBOARDS / "grafana").glob("*.json"))
    expected = {file.name: json.loads(file.read_text()) for file in files}
    assert evaluate("mixin.grafanaDashboards") == expected


def test_it_has_every_rule() -> None:
    recording = yaml.safe_load((DASHBOARDS / "rules" / "recording.yaml").read_text())
    assert evaluate("mixin.prometheusRules") == recording
    alerts = yaml.safe_load((DASHBOARDS / "rules" / "alerts.yaml").read_text())
    assert evaluate("mixin.prometheusAlerts") == alerts


def test_its_links_begin_as_configured() -> None:
    config = "{ runbookBase: 'https://wiki/runbooks/', dashboardBase: 'https://grafana' }"
    alerts = evaluate(f"(mixin + {{ _config+:: {config} }}).prometheusAlerts")
    expected = rules(Links("https://wiki/runbooks/", "https://grafana"))
    assert alerts == yaml.safe_load(expected)
