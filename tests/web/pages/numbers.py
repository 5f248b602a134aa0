"""Holds every number of a page against the JSON, and the JSON against the metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from itertools import chain
from typing import Any

from exporter import __version__
from exporter.text import format_count, format_percent, format_size
from tests.real.agent import Agent, Metrics
from tests.real.waiting import wait_until

_NUMBER = re.compile(
    r"(?<![\w.,+:/-])[+-]?\d[\d,]*(?:\.\d+)?(?:%| (?:B|KiB|MiB|GiB|TiB)\b)?(?![\w:-]|[.,]\d)"
)
_CONSTANT = ("Last 14 days", "every 5 minutes", "caps of 24 hours", __version__)
_FORMS: Mapping[str, Callable[[float], str]] = {
    "disk_used": format_percent,
    "empty_sessions": lambda value: format_count(int(value)),
}


@dataclass(frozen=True)
class Seen:
    """What an agent said in one moment: a page, and what it is made of."""

    page: str
    status: dict[str, Any]
    runs: list[dict[str, Any]]
    trends: dict[str, Any]
    metrics: Metrics

    def home(self, name: str) -> dict[str, Any]:
        return next(each for each in self.status["homes"] if each["home"] == name)


def look(running: Agent, page: Callable[[], str]) -> Seen:
    """Ask for everything until nothing has changed in between."""

    def everything() -> tuple[Any, Any, Any, Metrics]:
        status, runs, trends = (
            json.loads(running.get(f"/api/v1/{name}")[1]) for name in ("status", "runs", "trends")
        )
        return status, runs, trends, running.metrics()

    def unchanged() -> list[Seen]:
        before = everything()
        text = page()
        after = everything()
        same = _lasting(before[0]) == _lasting(after[0]) and before[1:3] == after[1:3]
        return [Seen(text, *after)] if same else []

    return wait_until(unchanged, "two scans in a row find the same")[0]


def _lasting(status: dict[str, Any]) -> Any:
    """The status without what changes with each scan, and with free space as pages show it."""
    homes = []
    for home in status["homes"]:
        shares = [round(each["value"] or 0, 3) for each in home["thresholds"]]
        homes.append({**home, "scanned_at": None, "thresholds": shares})
    return homes, status["refused"], status["agent"]


def visible(html: str) -> str:
    """The text of a page as a person reads it, without what is drawn."""
    return readable(unescape(re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<svg.*?</svg>", " ", html))))


def readable(text: str) -> str:
    return re.sub(r" ([;:,.)])", r"\1", " ".join(text.split()))


def amount(threshold: str, value: float) -> str:
    return _FORMS.get(threshold, format_size)(value)


def words(name: str) -> str:
    return name.replace("_", " ")


def sentences(home: Mapping[str, Any]) -> Iterator[str]:
    """What the part of a home has to say, word by word."""
    yield f"Open sessions {format_count(home['sessions']['open'])}"
    yield f"{format_count(home['sessions']['ended'])} ended"
    yield f"Dead {format_count(home['verdicts']['dead'])}"
    for verdict, number in home["verdicts"].items():
        yield f"{format_count(number)} {verdict}"
    for source in {each["source"] for each in home["leaked"]}:
        of_source = {
            each["cause"]: each["sessions"] for each in home["leaked"] if each["source"] == source
        }
        row = [of_source.get(cause, 0) for cause in ("mid_turn", "after_turn", "empty")]
        yield " ".join([source, *map(format_count, [*row, sum(row)])])
    yield f"Disk: {format_size(sum(home['disk'].values()))}"
    for kind, size in home["disk"].items():
        if size:
            yield f"{words(kind)} {format_size(size)}"
    for each in home["thresholds"]:
        name = each["name"]
        pressed = " under pressure" if each["pressure"] else ""
        low, high = amount(name, each["low"]), amount(name, each["high"])
        yield f"{words(name)}{pressed} low {low}, high {high} {amount(name, each['value'])}"
    many = "" if home["would_reap"] == 1 else "s"
    yield f"Would end {format_count(home['would_reap'])} session{many}"
    for begin, key in (("By hand:", "could_prune"), ("would take", "would_prune")):
        plan = home[key]
        many = "" if plan["items"] == 1 else "s"
        yield f"{begin} {format_count(plan['items'])} item{many}, {format_size(plan['bytes'])}"
    for each in home["policies"]:
        if each["eligible"]:
            count, size = format_count(each["items"]), format_size(each["bytes"])
            yield f"{words(each['policy'])} {count} {size}"


def run_sentence(run: Mapping[str, Any]) -> str:
    many = "" if run["actions"] == 1 else "s"
    did = f"{format_count(run['actions'])} action{many}, {format_size(run['bytes'])}"
    return f"ago: {run['outcome']}, {did} {run['run']}"


def missing(seen: Seen) -> list[str]:
    """Sentences that the host page should have and does not have."""
    wanted = chain.from_iterable(sentences(home) for home in seen.status["homes"])
    runs = map(run_sentence, seen.runs)
    return [each for each in chain(wanted, runs) if each not in seen.page]


def unexplained(seen: Seen) -> list[str]:
    """Numbers on the host page that are not in the JSON."""
    text = seen.page
    for constant in _CONSTANT:
        text = text.replace(constant, "")
    known = set(_known_texts(seen))
    return [each for each in _NUMBER.findall(text) if each.strip() not in known]


def _known_texts(seen: Seen) -> Iterator[str]:
    yield format_count(len(seen.status["homes"]))
    yield format_count(seen.status["refused"])
    for home in seen.status["homes"]:
        for sentence in sentences(home):
            yield from (each.strip() for each in _NUMBER.findall(sentence))
        yield str(sum(each["pressure"] for each in home["thresholds"]))
        yield format_size(sum(home["disk"].values()))
        yield format_count(home["sessions"]["open"])
    for run in seen.runs:
        yield from (each.strip() for each in _NUMBER.findall(run_sentence(run)))
    for trend in seen.trends["homes"]:
        yield from _trend_texts(trend, seen.home(trend["home"])["verdicts"]["dead"])


def _trend_texts(trend: Mapping[str, Any], dead: int) -> Iterator[str]:
    for value in (*trend["open"], *trend["dead"]):
        yield format_count(value)
        yield f"{dead - value:+d}"
    for column in zip(*trend["disk"].values(), strict=True):
        for value in column:
            yield format_size(value)
        # The smallest kinds are shown as one.
        for kept in range(len(column)):
            yield format_size(sum(sorted(column)[: len(column) - kept]))
    at, tokens = trend["at"], trend["tokens"]
    for begin in range(len(at)):
        for end in range(begin + 1, min(begin + 14, len(at))):
            rise = max(0.0, tokens[end] - tokens[begin]) * 3600 / (at[end] - at[begin])
            yield format_count(round(rise))


def differences(seen: Seen) -> list[str]:
    """Where the JSON says another number than the metrics."""
    found = []
    for home in seen.status["homes"]:
        for what, shown, name, labels in _pairs(home):
            if shown is None:
                continue
            wanted = {**labels, "home": home["home"]}
            measured = sum(seen.metrics.by(name, *_LABELS[name], **wanted).values())
            if abs(measured - shown) > 1e-9 + abs(shown) * _TOLERANCE.get(what, 0.0):
                found.append(f"{home['home']} {what}: {shown} in JSON, {measured} in {name}")
    return found


_LABELS: Mapping[str, tuple[str, ...]] = {
    "hermes_home_up": (),
    "hermes_sessions_open": ("source",),
    "hermes_sessions_ended": ("source", "end_reason"),
    "hermes_sessions_empty": (),
    "hermes_sessions_trivial": (),
    "hermes_sessions_open_by_verdict": ("source",),
    "hermes_sessions_leaked": (),
    "hermes_sessions_unknown": (),
    "hermes_disk_bytes": (),
    "hermes_prune_pressure": (),
    "hermes_prune_threshold_value": (),
    "hermes_prune_threshold_low": (),
    "hermes_prune_threshold_high": (),
    "hermes_disk_reclaimable_bytes": (),
    "hermes_reaper_enforcing": (),
    "hermes_prune_enforcing": (),
}
_TOLERANCE = {"disk_used value": 0.01}
"""Free space changes while the tests run."""

_Pair = tuple[str, float | None, str, dict[str, str]]


def _pairs(home: Mapping[str, Any]) -> Iterator[_Pair]:
    """What it is, its value in JSON, and where the metrics have it."""
    yield "up", float(home["up"]), "hermes_home_up", {}
    for mode in ("reaper", "prune"):
        yield mode, float(home["mode"][mode] == "enforce"), f"hermes_{mode}_enforcing", {}
    for name in ("open", "ended", "empty", "trivial"):
        yield name, home["sessions"][name], f"hermes_sessions_{name}", {}
    for verdict, number in home["verdicts"].items():
        yield verdict, number, "hermes_sessions_open_by_verdict", {"verdict": verdict}
    for each in home["leaked"]:
        labels = {"source": each["source"], "cause": each["cause"]}
        yield f"leaked {labels}", each["sessions"], "hermes_sessions_leaked", labels
    for reason, number in home["unknown"].items():
        yield f"unknown {reason}", number, "hermes_sessions_unknown", {"reason": reason}
    for kind, size in home["disk"].items():
        yield kind, size, "hermes_disk_bytes", {"kind": kind}
    for each in home["thresholds"]:
        for key in ("value", "low", "high"):
            name = f"hermes_prune_threshold_{key}"
            yield f"{each['name']} {key}", each[key], name, {"threshold": each["name"]}
        labels = {"threshold": each["name"]}
        yield f"{each['name']} pressure", each["pressure"], "hermes_prune_pressure", labels
    for each in home["policies"]:
        labels = {"policy": each["policy"]}
        yield each["policy"], each["bytes"], "hermes_disk_reclaimable_bytes", labels
