"""The report of `reap`: what would be done, or what was done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from exporter.cli.render.blocks import NO_HOME, Block, Cell, Column, Line, Table, Tone
from exporter.cli.render.left_alone import left_alone, stopped
from exporter.reaper.plan import ReapAction
from exporter.text import counted, format_count

_COLUMNS = (
    Column("home", least=8, spare=2),
    Column("session"),
    Column("idle", right=True),
    Column("why", least=20, spare=1),
)
_IDLE_FOR = "idle for "
_LISTED = 20
"""How many sessions are listed one by one; `--all` lists all."""
_DAY = 86400.0
_IDLE = (("< 1d", _DAY), ("1-7d", 7 * _DAY), ("7-30d", 30 * _DAY), ("> 30d", inf))
_OUTCOMES = {"done": Tone.GOOD, "partial": Tone.WARN, "failed": Tone.BAD}


def blocks(
    result: Mapping[str, Any],
    *,
    again: str = "",
    go_on: str = "",
    chosen: str = "",
    homes: int = 1,
    in_the_way: str = "",
    not_saved: str = "",
    plans: Sequence[tuple[str, Sequence[ReapAction]]] = (),
    now: float = 0.0,
    list_all: bool = False,
) -> Iterator[Block]:
    """Yield lines and tables for the value that `reap --json` prints.

    - `again`: the options to repeat in the next command
    - `go_on`: this command again, to continue where it was stopped
    - `not_saved`: why the plan could not be saved
    - `chosen`: the filters of the plan
    - `homes`: the number of homes that were scanned
    - `in_the_way`: why nothing is planned although there may be something to do
    """
    plan = result["plan"]
    if result["executed"] and (result["done"] or result["skipped"]):
        yield from _executed(result, again, go_on)
    elif plan["actions"]:
        yield from _totals(plans, now)
        yield from _table(plan["actions"], list_all=list_all)
        total = counted(len(plan["actions"]), "session")
        yield Line((Cell(f"{total} would be ended. Nothing was changed.", Tone.STRONG),))
        yield from how_to_execute("reap", plan["hash"], again, not_saved, go_on)
    elif not homes:
        yield NO_HOME
    else:
        none = f"no session of {chosen}" if chosen else "no session"
        if in_the_way:
            yield Line((Cell(f"Nothing can be done now: {in_the_way}.", Tone.WARN),))
        else:
            yield Line((Cell(f"Nothing to do: {none} is dead.", Tone.FAINT),))


def _totals(plans: Sequence[tuple[str, Sequence[ReapAction]]], now: float) -> Iterator[Block]:
    """Yield how many sessions there are by home, source and time of idleness."""
    counts: dict[tuple[str, str], list[int]] = {}
    for label, actions in plans:
        for action in actions:
            ages = counts.setdefault((label, action.expected.source), [0] * len(_IDLE))
            idle = now - action.expected.last_activity_at
            ages[next(place for place, (_, most) in enumerate(_IDLE) if idle < most)] += 1
    shown = [place for place in range(len(_IDLE)) if any(ages[place] for ages in counts.values())]
    if sum(map(sum, counts.values())) <= 1:
        return
    columns = (
        Column("home", least=8),
        Column("source"),
        Column("sessions", right=True),
        *(Column(f"idle {_IDLE[place][0]}", right=True) for place in shown),
    )
    rows = tuple(
        (
            Cell(label),
            Cell(source, Tone.STRONG),
            Cell(format_count(sum(ages))),
            *(Cell(format_count(ages[place])) for place in shown),
        )
        for (label, source), ages in counts.items()
    )
    yield Table(columns, rows)
    yield Line()


def _table(actions: Sequence[Mapping[str, Any]], *, list_all: bool) -> Iterator[Block]:
    shown = actions if list_all else actions[:_LISTED]
    told = [_idle_and_why(each["reason"]) for each in shown]
    several = len({each["home"] for each in actions}) > 1
    columns = _COLUMNS if several else _COLUMNS[1:]
    rows = [
        (
            Cell(each["home"]),
            Cell(each["target"], Tone.STRONG),
            Cell(idle),
            Cell('"' if why == above and why else why, Tone.FAINT),
        )
        for each, (idle, why), above in zip(
            shown, told, ["", *(why for _, why in told)], strict=False
        )
    ]
    yield Table(columns, tuple(row if several else row[1:] for row in rows))
    if len(shown) < len(actions):
        more = format_count(len(actions) - len(shown))
        yield Line((Cell(f"and {more} more; --all lists them", Tone.FAINT),))
    yield Line()


def _idle_and_why(reason: str) -> tuple[str, str]:
    """Return the two parts of `idle for 3d; no process has the database open`."""
    idle, _, why = reason.partition("; ")
    return (idle.removeprefix(_IDLE_FOR), why) if idle.startswith(_IDLE_FOR) else ("", reason)


def how_to_execute(
    command: str, plan_hash: str, again: str, not_saved: str, repeat: str
) -> Iterator[Block]:
    """Yield the command that executes the plan; if it is not saved, one that plans again."""
    if not not_saved:
        yield Line((Cell("To do exactly this:", Tone.FAINT),))
        said = f"hermes-exporter {command} --plan {plan_hash} --yes{again}"
    else:
        yield Line((Cell(f"This plan could not be saved: {not_saved}.", Tone.WARN),))
        yield Line((Cell("To make it again and do it at once:", Tone.FAINT),))
        said = f"{repeat} --yes"
    yield Line((Cell(said),), 1, whole=True)


def unknown_outcome(result: Mapping[str, Any], again: str) -> Iterator[Block]:
    """Yield lines for a run whose journal or worker failed: its targets may or may not be done."""
    for why in dict.fromkeys(each["why"] for each in result["skipped"]):
        yield Line((Cell(why, Tone.WARN),))
    yield Line()
    said = "Not known what was done. The next command finds out; to give it back:"
    yield Line((Cell(said, Tone.BAD),))
    yield Line((Cell(f"hermes-exporter undo {result['run']}{again}"),), 1, whole=True)


def stopped_run(
    result: Mapping[str, Any], noun: str, verb: str, again: str, go_on: str
) -> Iterator[Block]:
    """Yield the last lines of a reap or prune that a person stopped."""
    planned = counted(len(result["plan"]["actions"]), noun)
    run = f" by run {result['run']}" if result["run"] else ""
    said = f"Interrupted: {format_count(result['done'])} of {planned} {verb}{run}."
    undo = f"hermes-exporter undo {result['run']}{again}" if result["done"] else ""
    yield from stopped(said, undo=undo, go_on=go_on)


def _executed(result: Mapping[str, Any], again: str, go_on: str) -> Iterator[Block]:
    if result["outcome"] == "unknown":
        yield from unknown_outcome(result, again)
        return
    yield from left_alone(result["skipped"])
    outcome = result["outcome"]
    if outcome == "interrupted":
        yield from stopped_run(result, "session", "ended", again, go_on)
        return
    said = f"{counted(result['done'], 'session')} ended"
    if result["skipped"]:
        said += f", {format_count(len(result['skipped']))} left alone"
    yield Line((Cell(f"{said}.", _OUTCOMES.get(outcome, Tone.PLAIN)),))
    if result["run"] is not None:
        yield Line((Cell("To take it back:", Tone.FAINT),))
        yield Line((Cell(f"hermes-exporter undo {result['run']}{again}"),), 1, whole=True)
