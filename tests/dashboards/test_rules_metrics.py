"""Rules, dashboards and pages speak of metrics that exist, and every metric is of use somewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from exporter import collectors
from exporter.collectors.registry import (
    COLLECTOR_DURATION,
    COLLECTOR_SUCCESS,
    Description,
    MetricKind,
)
from exporter.collectors.render import SERIES
from exporter.collectors.series_budget import values_of
from tests.real.hermes import REPOSITORY

DASHBOARDS = REPOSITORY / "dashboards"

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_METRIC = re.compile(r"\b(?:hermes_[a-z0-9_]+|(?:home|job|instance):[a-z_]+:[a-z0-9_]+)")
_SELECTOR = re.compile(r"\b(hermes_[a-z0-9_]+)\s*\{([^}]*)\}")
_MATCHER = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")


def descriptions() -> dict[str, Description]:
    found = [each for collector in collectors.collectors() for each in collector.descriptions]
    return {each.name: each for each in (*found, COLLECTOR_SUCCESS, COLLECTOR_DURATION, SERIES)}


def exported() -> dict[str, str]:
    """What a scrape has: the name of a sample to the name of its metric.

    Of gauge histograms only the buckets are called the same in both formats.
    """
    return {
        f"{name}_bucket" if each.kind is MetricKind.GAUGE_HISTOGRAM else name: name
        for name, each in descriptions().items()
    }


def rules() -> Iterator[tuple[str, str]]:
    """Name and expression of every rule."""
    for file in sorted((DASHBOARDS / "rules").glob("*.yaml")):
        for group in yaml.safe_load(file.read_text())["groups"]:
            for rule in group["rules"]:
                yield rule.get("record") or rule["alert"], rule["expr"]


def recorded() -> set[str]:
    return {name for name, _ in rules() if ":" in name}


def panels() -> Iterator[tuple[str, str]]:
    """Where in which dashboard, and the expression there."""
    for file in sorted(DASHBOARDS.rglob("*.json")):
        if "render" not in file.relative_to(DASHBOARDS).parts:
            yield from _expressions(json.loads(file.read_text()), file.name)


def _expressions(part: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(part, dict):
        title = part.get("title") or part.get("name")
        where = f"{where}: {title}" if isinstance(title, str) else where
        for key, value in part.items():
            if key in ("expr", "query", "definition") and isinstance(value, str):
                yield where, value
            else:
                yield from _expressions(value, where)
    elif isinstance(part, list):
        for value in part:
            yield from _expressions(value, where)


def read_by(expression: str) -> set[str]:
    """The metrics that an expression reads."""
    return set(_METRIC.findall(_STRING.sub('""', expression)))


def pages() -> list[Path]:
    found = [REPOSITORY / "README.md", *REPOSITORY.glob("docs/*.md"), *DASHBOARDS.rglob("*.md")]
    return sorted(page for page in found if "node_modules" not in page.parts)


def test_rules_and_panels_read_metrics_that_exist() -> None:
    known = exported().keys() | recorded()
    unknown = {
        where: sorted(read_by(expression) - known)
        for where, expression in (*rules(), *panels())
        if read_by(expression) - known
    }
    assert unknown == {}


def test_pages_name_metrics_that_exist() -> None:
    known = descriptions().keys() | exported().keys() | recorded()
    unknown = {}
    for page in pages():
        quoted = re.findall(r"`[^`\n]+`", re.sub(r"^```\w*$", "", page.read_text(), flags=re.M))
        named = {name for code in quoted for name in _METRIC.findall(code)}
        if named - known:
            unknown[page.name] = sorted(named - known)
    assert unknown == {}


def test_selectors_name_labels_that_the_metric_has() -> None:
    wrong = [
        f"{where}: {name} has no label {label}"
        for where, expression in (*rules(), *panels())
        for name, matchers in _SELECTOR.findall(expression)
        if name in exported()
        for label in _MATCHER.findall(_STRING.sub('""', matchers))
        if label not in {*descriptions()[exported()[name]].labels, "job", "instance", "le"}
    ]
    assert wrong == []


def test_selectors_ask_for_values_that_the_label_can_take() -> None:
    """Where it is known what a label can be; a variable of Grafana can be anything."""
    wrong = [
        f"{where}: {name} never has {label}={value}"
        for where, expression in (*rules(), *panels())
        for name, matchers in _SELECTOR.findall(expression)
        if name in exported()
        for label, wanted in re.findall(r'([a-z_]+)\s*[=!]~?\s*"([a-z_|]+)"', matchers)
        if (possible := _possible(exported()[name], label))
        for value in wanted.split("|")
        if value not in possible
    ]
    assert wrong == []


def _possible(metric: str, label: str) -> tuple[str, ...]:
    try:
        return values_of(metric, label)
    except KeyError:
        return ()


def test_every_metric_is_of_use() -> None:
    """A rule or a panel reads it, or its declaration says why it is exported all the same."""
    used = {name for _, expression in (*rules(), *panels()) for name in read_by(expression)}
    unused = {metric for sample, metric in exported().items() if sample not in used}
    declared = {name for name, each in descriptions().items() if each.no_panel}
    assert unused == declared, "draw it in dashboards/, or say with `no_panel` why not"


def test_everything_recorded_is_read() -> None:
    """A rule that nothing reads costs as much at every evaluation."""
    read = {name for _, expression in (*rules(), *panels()) for name in read_by(expression)}
    assert recorded() - read == set()
