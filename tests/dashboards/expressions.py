"""Looking into the dashboards' JSON and the PromQL in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.real.hermes import REPOSITORY

FOLDER = REPOSITORY / "dashboards" / "grafana"
FILES = sorted(FOLDER.glob("*.json"))
NAMES = [file.stem for file in FILES]

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_SELECTOR = re.compile(
    r"(?P<name>[a-zA-Z_][\w:]*)\s*(?:\{(?P<matchers>[^}]*)\})?\s*(?:\[(?P<range>[^\]]+)\])?"
)
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan"})


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric in an expression, with what stands around it."""

    name: str
    matchers: str
    range: str
    function: str
    """The function that it is the argument of; empty if there is none."""


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return loaded


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """All but the headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets(dashboard: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every query, with the title of its panel."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel["title"], target


def selectors(expression: str) -> Iterator[Selector]:
    """Every metric that an expression reads."""
    # Strings keep their length, so that places in the one are places in the other.
    bare = _STRING.sub(lambda found: '"' + "_" * (len(found[0]) - 2) + '"', expression)
    bare = _GROUPING.sub(lambda found: " " * len(found[0]), bare)
    place = 0
    while found := _SELECTOR.search(bare, place):
        place = found.end()
        is_call = bare[place:].lstrip().startswith("(") and not found["matchers"]
        if is_call or found["name"] in _WORDS or _within_number(bare, found.start()):
            continue
        span = found.span("matchers")
        matchers = expression[slice(*span)] if found["matchers"] else ""
        before = re.search(r"(\w+)\s*\(\s*$", bare[: found.start()])
        yield Selector(found["name"], matchers, found["range"] or "", before[1] if before else "")


def _within_number(text: str, start: int) -> bool:
    """Such as the `e` of 1e9 and the `d` of a subquery's `1d`."""
    return start > 0 and (text[start - 1].isdigit() or text[start - 1] == ".")
