"""Unit tests of rules, as `promtool test rules` runs them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.real.hermes import REPOSITORY

RULES = REPOSITORY / "dashboards" / "rules"
RULE_FILES = (RULES / "recording.yaml", RULES / "alerts.yaml")

_RECORDED = re.compile(r"[a-z]+:[a-z_]+:[a-z0-9_]+")

Values = list[str]
Series = dict[str, Values]
"""A selector to its samples, one for each step from time 0 on."""


def run(*parts: tuple[int, object]) -> Values:
    """So many samples of each value: `run((10, 0), (5, 1))`."""
    return [str(value) for count, value in parts for _ in range(count)]


def ramp(count: int, first: float, step: float) -> Values:
    """`count` samples that rise (or fall) by `step`."""
    return [repr(first + index * step) for index in range(count)]


@dataclass(frozen=True, slots=True)
class Expected:
    """What fires at one moment: labels and annotations of each alert, all of them."""

    alert: str
    at_seconds: int
    firing: Sequence[tuple[dict[str, str], dict[str, str]]] = ()


@dataclass(frozen=True, slots=True)
class UnitTest:
    series: Series
    step_seconds: int
    expected: Iterable[Expected]

    def document(self) -> dict[str, Any]:
        return {
            "interval": f"{self.step_seconds}s",
            "input_series": [
                {"series": name, "values": " ".join(values)} for name, values in self.series.items()
            ],
            "alert_rule_test": [
                {
                    "eval_time": f"{each.at_seconds}s",
                    "alertname": each.alert,
                    "exp_alerts": [
                        {"exp_labels": labels, "exp_annotations": annotations}
                        for labels, annotations in each.firing
                    ],
                }
                for each in self.expected
            ],
        }


def check(folder: Path, tests: Sequence[UnitTest], alert: str) -> str:
    """What promtool complains of; nothing when every expectation holds."""
    rules = folder / "rules.json"  # JSON is YAML
    names = _only_what_it_needs(alert, rules)
    complaints = []
    for step in sorted({test.step_seconds for test in tests}):
        file = folder / f"every-{step}s.json"
        document = {
            "rule_files": [str(rules)],
            "evaluation_interval": f"{step}s",
            "group_eval_order": names,
            "tests": [test.document() for test in tests if test.step_seconds == step],
        }
        file.write_text(json.dumps(document))
        done = subprocess.run(
            ["promtool", "test", "rules", str(file)], capture_output=True, text=True
        )
        if done.returncode:
            complaints.append(done.stdout + done.stderr)
    return "\n".join(complaints)


def _only_what_it_needs(alert: str, file: Path) -> list[str]:
    """Write the alert and what is recorded for it as a rule file: promtool evaluates every rule at
    every step, and days have many. Returns the groups in their order."""
    documents = [yaml.safe_load(path.read_text()) for path in RULE_FILES]
    groups = [group for document in documents for group in document["groups"]]
    rules = {_name(rule): rule for group in groups for rule in group["rules"]}
    needed: set[str] = set()
    waiting = {alert}
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting |= (set(_RECORDED.findall(rules[name]["expr"])) & rules.keys()) - needed
    kept = [
        {**group, "rules": [rule for rule in group["rules"] if _name(rule) in needed]}
        for group in groups
    ]
    kept = [group for group in kept if group["rules"]]
    file.write_text(json.dumps({"groups": kept}))
    return [group["name"] for group in kept]


def _name(rule: dict[str, Any]) -> str:
    name: str = rule.get("record") or rule["alert"]
    return name
