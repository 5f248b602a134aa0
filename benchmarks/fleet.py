"""A Prometheus with an hour of data of many hosts, and the Fleet dashboard's queries to it.

The hosts are invented and their history is written to files (`tests.dashboards.history`): a
thousand agents do not fit on this machine. The contents of Prometheus, and the results of the
recording rules, are as in reality.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct

from exporter.config.units import parse_duration
from tests.dashboards.history import (
    DAY,
    HOUR,
    MINUTE,
    Home,
    Host,
    Series,
    host_series,
    recorded_series,
)
from tests.real.hermes import REPOSITORY
from tests.real.prometheus import Prometheus, prometheus

_DASHBOARDS: Final = REPOSITORY / "dashboards"
_KINDS_OF_HOST: Final = 10
_RECORDED: Final = re.compile(r"\b((?:home|job|instance):\w+:\w+)(?:\{([^}]*)\})?")
_OVER_RECORDED: Final = re.compile(rf"(\w+)\({_RECORDED.pattern}\[(\w+)\]( offset \w+)?\)")
_FOLD: Final = re.compile(
    # A sum, perhaps in brackets, with what stands in where it is absent and where it is hidden.
    r"^(?:\(\s*)?(\w+ by \([\w, ]+\)) \(\s*(.*?)\s*\)(?:\s+or .*|\s+unless .*)?$",
    re.DOTALL,
)
_SELECTOR: Final = re.compile(r"(?<![:\w])(hermes_\w+|up)(?![:\w])(?:\{([^}]*)\})?")


class PanelQuery(Struct, frozen=True):
    """One panel's query to Prometheus, with everything selected."""

    panel: str
    expression: str
    instant: bool

    @property
    def without_rules(self) -> PanelQuery:
        """Return the same query on the series that agents export."""
        return PanelQuery(self.panel, expanded(self.expression), self.instant)


class Group(Struct, frozen=True):
    """Rules that Prometheus evaluates in order, at this interval."""

    name: str
    interval_seconds: float
    rules: dict[str, str]
    """The recorded name, and the expression it is recorded from."""


class Fleet(Struct, frozen=True):
    """A server, and the moment up to which it has all data."""

    server: Prometheus
    now: float

    def cpu_seconds(self) -> float:
        """Return the processor time that the server has used so far."""
        with urllib.request.urlopen(f"{self.server.url}/metrics", timeout=60) as answer:
            found = re.search(rb"^process_cpu_seconds_total (\S+)$", answer.read(), re.MULTILINE)
        if found is None:
            raise RuntimeError("Prometheus does not tell its processor time")
        return float(found[1])

    def ask(self, question: PanelQuery) -> list[dict[str, Any]]:
        """Return the series of the answer: at this moment, or over the last hour for a graph."""
        if question.instant:
            answer = self.server.get("/api/v1/query", query=question.expression, time=str(self.now))
        else:
            answer = self.server.get(
                "/api/v1/query_range",
                query=question.expression,
                start=str(self.now - HOUR),
                end=str(self.now),
                step="60",
            )
        series: list[dict[str, Any]] = answer["result"]
        return series


def panel_queries() -> list[PanelQuery]:
    """Return all queries of the Fleet dashboard."""
    dashboard = json.loads((_DASHBOARDS / "grafana" / "hermes-fleet.json").read_text())
    return list(_questions(dashboard, ""))


def _questions(part: Any, panel: str) -> Iterator[PanelQuery]:
    if isinstance(part, dict):
        panel = part.get("title") or panel
        if isinstance(part.get("expr"), str) and not part.get("hide"):
            expression = re.sub(r"\$\w+", ".+", part["expr"])
            yield PanelQuery(panel, expression, instant=bool(part.get("instant")))
        else:
            for value in part.values():
                yield from _questions(value, panel)
    elif isinstance(part, list):
        for value in part:
            yield from _questions(value, panel)


def groups() -> list[Group]:
    """Return the recording rules as Prometheus reads them."""
    rules = yaml.safe_load((_DASHBOARDS / "rules" / "recording.yaml").read_text())
    return [
        Group(
            group["name"],
            parse_duration(group["interval"]),
            {rule["record"]: rule["expr"] for rule in group["rules"]},
        )
        for group in rules["groups"]
    ]


def recorded() -> dict[str, str]:
    """Return each recorded name, and the expression it is recorded from."""
    return {name: rule for group in groups() for name, rule in group.rules.items()}


def expanded(expression: str) -> str:
    """Return the expression with each recorded series replaced by its own expression.

    It is what a user without rules would write. A function over the past of a recorded sum becomes
    the sum of that function over the past of its parts, so that nothing is evaluated twice.
    """
    rules = recorded()

    def over_parts(found: re.Match[str]) -> str:
        function, name, matchers, duration, offset = found.groups(default="")
        fold = _FOLD.match(rules[name])
        assert fold, f"cannot be taken apart: {name}"
        inner = fold[2]
        if inner.startswith("rate("):  # an average of rates is a rate over a longer time
            inner = re.sub(r"\[\w+\]", f"[{duration}]", inner)
        else:
            inner = f"{function}({inner}[{duration}]{offset})"
        return f"({matched(f'{fold[1]} ({inner})', matchers)})"

    def parts(found: re.Match[str]) -> str:
        name, matchers = found.groups(default="")
        return f"({matched(rules[name], matchers)})"

    def matched(rule: str, matchers: str) -> str:
        """Return the same selection of the raw series, and of recorded ones still in it."""

        def select(found: re.Match[str]) -> str:
            both = ", ".join(each for each in (found[2], matchers) if each)
            return f"{found[1]}{{{both}}}" if both else found[1]

        return _SELECTOR.sub(select, _RECORDED.sub(select, rule)) if matchers else rule

    while _RECORDED.search(expression):
        expression = _OVER_RECORDED.sub(over_parts, expression)
        expression = _RECORDED.sub(parts, expression)
    return expression


@contextmanager
def fleet(hosts: int) -> Iterator[Fleet]:
    """Serve this many hosts, with what the rules have recorded of the last hour."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        folder = Path(name)
        data = folder / "data"
        now = time.time() // 60 * 60
        history = folder / "history.txt"
        _write_history(history, hosts, now)
        _make_blocks("openmetrics", "--quiet", str(history), str(data))
        history.unlink()
        for level, rules in enumerate(_levels(recorded())):
            _evaluate(folder / f"level-{level}.json", rules, data, now)
        with _serving(data) as server:
            yield Fleet(server, now)


def _write_history(path: Path, hosts: int, now: float) -> None:
    """Write OpenMetrics. A few kinds of hosts are repeated under other names."""
    wanted = {name for rule in recorded().values() for name in re.findall(r"\bhermes_\w+", rule)}
    kinds = [
        Host(f"kind-{n}", (Home(size=0.5 + n / 5, leaks_per_hour=n / 3, false_reaps=n % 2),))
        for n in range(min(hosts, _KINDS_OF_HOST))
    ]
    times = sorted(_moments(now))
    long_ago = [at for at in times if at < now - HOUR]
    texts = [
        "".join(
            (
                *_lines(host_series(kind, now), times, wanted | {"up"}),
                *_lines(recorded_series(kind, now), long_ago, recorded().keys()),
            )
        )
        for kind in kinds
    ]
    with path.open("w") as file:
        for number in range(hosts):
            kind = number % len(kinds)
            file.write(texts[kind].replace(f'"kind-{kind}"', f'"host-{number:05}"'))
        file.write("# EOF\n")


def _lines(series: Iterable[Series], times: list[float], wanted: Collection[str]) -> Iterator[str]:
    for each in series:
        if each.name in wanted:
            for at in times:
                if (value := each.value(at)) is not None:
                    yield f"{each.name}{{{_written(each.labels)}}} {value:.10g} {at:.3f}\n"


def _written(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _moments(now: float) -> Iterator[float]:
    """Yield sample times: many in the last hour, few where only trends look, and a day ago."""
    yield from (now - number * 2 * MINUTE for number in range(36))
    yield from (now - number * 9 * MINUTE for number in range(8, 50))
    yield from (now - DAY - number * 2 * MINUTE for number in range(6))


def _levels(waiting: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield the rules in an order in which each reads only what earlier ones made."""
    while waiting:
        read = {
            name: {found[1] for found in _RECORDED.finditer(rule)} for name, rule in waiting.items()
        }
        ready = {name: waiting[name] for name in waiting if not read[name] & waiting.keys()}
        yield ready
        waiting = {name: rule for name, rule in waiting.items() if name not in ready}


def _evaluate(file: Path, rules: dict[str, str], data: Path, now: float) -> None:
    """Evaluate rules for a past without them, with promtool."""
    listed = [{"record": name, "expr": rule} for name, rule in rules.items()]
    file.write_text(json.dumps({"groups": [{"name": file.stem, "rules": listed}]}))
    with _serving(data) as server:
        _make_blocks(
            "rules",
            *("--url", server.url, "--output-dir", str(data), "--eval-interval", "1m"),
            *("--start", str(int(now - HOUR)), "--end", str(int(now))),
            str(file),
        )


@contextmanager
def _serving(data: Path) -> Iterator[Prometheus]:
    with prometheus([], configuration="scrape_configs: []", data=data) as server:
        yield server


def _make_blocks(what: str, *arguments: str) -> None:
    command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=48h", what]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
