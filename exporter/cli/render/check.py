"""The report of `check`: what the agent can and cannot see, why, and how to grant it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from exporter.cli.agent_cost import AgentCost
from exporter.cli.render.blocks import Block, Cell, Column, Line, Table, Tone
from exporter.text import counted, format_age, format_percent, format_size


def blocks(
    report: Mapping[str, Any], advice: Sequence[str] = (), cost: AgentCost | None = None
) -> Iterator[Block]:
    """Yield lines and tables for the value that `check --json` prints, and some advice.

    Problems of the configuration are only counted here. They go to stderr, one line each, and with
    any of them there is nothing else to report.
    """
    problems = len(report["config"])
    verdict = counted(problems, "problem") if problems else "ok"
    tone = Tone.BAD if problems else Tone.GOOD
    yield Line((Cell("configuration:"), Cell(verdict, tone)))
    if problems:
        return
    if cost is not None:
        yield Line((Cell("agent:"), Cell(_cost(cost))))
    if not report["homes"]:
        yield Line((Cell("homes:"), Cell("none found; name one with --home PATH", Tone.WARN)))
    for home in report["homes"]:
        yield Line()
        name = Cell(home["home"], Tone.STRONG) if home["home"] else Cell("not watched", Tone.WARN)
        yield Line((name, Cell(home["path"], Tone.FAINT)))
        yield from _can(home)
        for missing in home["cannot"]:
            yield from _cannot(missing)
    for each in advice:
        yield Line()
        yield Line((Cell("advice:", Tone.FAINT), Cell(each)))


def _cost(cost: AgentCost) -> str:
    processes = f"{cost.processes} process{'es' if cost.processes > 1 else ''}"
    memory, share = format_size(cost.memory_bytes), format_percent(cost.core_share)
    age = format_age(cost.age_seconds)
    return f"{processes}, {memory} of memory, {share} of a core since it started {age} ago"


def _can(home: Mapping[str, Any]) -> Iterator[Table]:
    rows = tuple((Cell("can", Tone.GOOD), Cell(what)) for what in home["can"])
    if rows:
        yield Table((Column(), Column(least=12)), rows, level=1)


def _cannot(missing: Mapping[str, Any]) -> Iterator[Block]:
    yield Line((Cell("cannot", Tone.BAD), Cell(missing["what"])), level=1)
    rows = tuple(
        (Cell(title, Tone.FAINT), Cell(missing[key]))
        for title, key in (("because", "why"), ("to grant it", "grant"))
        if missing[key]
    )
    if rows:
        yield Table((Column(), Column(least=12)), rows, level=2)
