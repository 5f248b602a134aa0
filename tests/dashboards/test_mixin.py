"""The mixin, evaluated with a real jsonnet: what it gives is what is generated."""

from __future__ import annotations

import json
from typing import Any

import _gojsonnet  # type: ignore[import-not-found]
import yaml

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
    rules = yaml.safe_load((DASHBOARDS / "rules" / "recording.yaml").read_text())
    assert evaluate("mixin.prometheusRules") == rules
    alerts = yaml.safe_load((DASHBOARDS / "rules" / "alerts.yaml").read_text())
    assert evaluate("mixin.prometheusAlerts") == alerts
