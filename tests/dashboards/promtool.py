"""Unit tests of rules, as `promtool test rules` runs them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real.hermes import REPOSITORY

RULES = REPOSITORY / "dashboards" / "rules"
RULE_FILES = (RULES / "recording.yaml", RULES / "alerts.yaml")

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


def check(folder: Path, tests: Sequence[UnitTest], group_order: Sequence[str]) -> str:
    """What promtool complains of; nothing when every expectation holds."""
    complaints = []
    for step in sorted({test.step_seconds for test in tests}):
        file = folder / f"every-{step}s.json"  # JSON is YAML
        document = {
            "rule_files": [str(path) for path in RULE_FILES],
            "evaluation_interval": f"{step}s",
            "group_eval_order": list(group_order),
            "tests": [test.document() for test in tests if test.step_seconds == step],
        }
        file.write_text(json.dumps(document))
        done = subprocess.run(
            ["promtool", "test", "rules", str(file)], capture_output=True, text=True
        )
        if done.returncode:
            complaints.append(done.stdout + done.stderr)
    return "\n".join(complaints)
