"""A real Prometheus with a past of invented hosts and a present of real agents.

The past is backfilled by promtool and goes on: the invented hosts are scraped too. The recording
rules are the project's own.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.dashboards.history import DAY, JOB, MINUTE, Host, Series, host_series, write_history
from tests.real.hermes import REPOSITORY
from tests.real.prometheus import Prometheus, prometheus
from tests.real.waiting import wait_until

RECORDING_RULES = REPOSITORY / "dashboards" / "rules" / "recording.yaml"

NOBODY = "127.0.0.1:9"
"""An address where no server answers."""
_EXPORTED = ("hermes_", "process_")
"""What is not Prometheus's own, as `up` is."""

Group = dict[str, Any]


@contextmanager
def stage(
    folder: Path,
    hosts: Sequence[Host],
    times: Callable[[float], list[float]],
    agents: Mapping[str, str],
    *,
    rules_of_the_past: bool = False,
    rules_since: float = 1.05 * DAY,
    until: float | None = None,
) -> Iterator[Prometheus]:
    """Serve the past of `hosts` and scrape `agents` (name to address) every second.

    With `rules_of_the_past` promtool evaluates the recording rules for the past too, `rules_since`
    so many seconds ago, as one does when they are new; else only the few recorded series that rules
    look back at have one. Where the past ends at a moment, `until`, there is no present: all panels
    can look at that moment.
    """
    data = folder / "data"
    # A little back, so that what is scraped from now on comes after it.
    now = time.time() - 5 if until is None else until
    file = folder / "history.txt"
    # promtool evaluates rules at moments of its own, up to a minute before the last one.
    still = 0.0 if until is None else 5 * MINUTE
    write_history(file, hosts, now, times(now), recorded=not rules_of_the_past, still=still)
    _promtool("openmetrics", "--quiet", str(file), str(data))
    file.unlink()
    if rules_of_the_past:
        _evaluate_past(folder, data, now, rules_since)
    if until is not None:
        with prometheus([], configuration="scrape_configs: []", data=data) as server:
            yield server
        return
    rules = folder / "rules.yaml"
    rules.write_text(json.dumps({"groups": [_hurried(group) for group in recording_groups()]}))
    configuration: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": JOB,
                "static_configs": [
                    {"targets": [address], "labels": {"instance": name}}
                    for name, address in agents.items()
                ],
            }
        ],
    }
    with _going_on(hosts, now) as targets:
        patient = {"scrape_interval": "5s", "scrape_timeout": "5s"}
        configuration["scrape_configs"].append(
            {"job_name": "invented", "static_configs": targets, **patient}
        )
        with prometheus([], configuration=json.dumps(configuration), data=data) as server:
            for name in agents:
                server.wait_for(f'hermes_home_up{{instance="{name}"}}')
            _wait_for_rules(server)
            yield server


@contextmanager
def _going_on(hosts: Sequence[Host], since: float) -> Iterator[list[dict[str, Any]]]:
    """Serve what the invented hosts say now: targets for Prometheus, one per host."""
    series = [
        [each for each in host_series(host, since) if each.name.startswith(_EXPORTED)]
        for host in hosts
    ]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = "".join(_samples(series[int(self.path.strip("/"))], time.time())).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        yield [
            {
                "targets": [NOBODY if host.down_for else address],
                "labels": {"job": JOB, "instance": host.name, "__metrics_path__": f"/{number}"},
            }
            for number, host in enumerate(hosts)
        ]
        server.shutdown()


def _samples(series: Iterable[Series], now: float) -> Iterator[str]:
    """As an agent exposes them: whose they are Prometheus knows by itself."""
    for each in series:
        value = each.value(now)
        if value is not None:
            own = {k: v for k, v in each.labels.items() if k not in ("job", "instance")}
            labels = ",".join(f'{key}="{text}"' for key, text in own.items())
            yield f"{each.name}{{{labels}}} {value:.10g}\n"


def recording_groups() -> list[Group]:
    groups: list[Group] = yaml.safe_load(RECORDING_RULES.read_text())["groups"]
    return groups


def recorded_names() -> set[str]:
    return {rule["record"] for group in recording_groups() for rule in group["rules"]}


def _hurried(group: Group) -> Group:
    """Evaluated every second, so that no test waits for minutes."""
    return {**group, "interval": "1s"}


def _wait_for_rules(server: Prometheus) -> None:
    """Each group has been evaluated as often as it takes for those that read one another."""
    for _ in range(len(list(_levels(recording_groups()))) + 1):
        before = _evaluations(server)

        def moved_on(before: dict[str, str] = before) -> bool:
            return all(at != before[name] for name, at in _evaluations(server).items())

        wait_until(moved_on, "the recording rules are evaluated")


def _evaluations(server: Prometheus) -> dict[str, str]:
    """When each group was last evaluated; no rule may be ill."""
    groups = server.get("/api/v1/rules")["groups"]
    ill = [rule for group in groups for rule in group["rules"] if rule["health"] == "err"]
    assert ill == []
    return {group["name"]: group["lastEvaluation"] for group in groups}


def _evaluate_past(folder: Path, data: Path, now: float, seconds: float) -> None:
    """Rules that read others come after them: promtool knows only what Prometheus has already."""
    for level, rules in enumerate(_levels(recording_groups())):
        file = folder / f"level-{level}.yaml"
        file.write_text(
            json.dumps({"groups": [{"name": "past", "interval": "1m", "rules": rules}]})
        )
        with prometheus([], configuration="scrape_configs: []", data=data) as server:
            _promtool(
                "rules",
                *("--url", server.url, "--output-dir", str(data), "--eval-interval", "1m"),
                *("--start", str(int(now - seconds)), "--end", str(int(now))),
                str(file),
            )


def _levels(groups: Iterable[Group]) -> Iterator[list[dict[str, str]]]:
    """The rules in an order in which each reads only what earlier ones made."""
    waiting = {rule["record"]: rule for group in groups for rule in group["rules"]}
    while waiting:
        ready = [
            rule
            for record, rule in waiting.items()
            if not _names(rule["expr"]) & (waiting.keys() - {record})
        ]
        yield ready
        for rule in ready:
            del waiting[rule["record"]]


def _names(expression: str) -> set[str]:
    return set(re.findall(r"[a-z]\w*:\w+:\w+", expression))


def _promtool(what: str, *arguments: str) -> None:
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=48h", what, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
