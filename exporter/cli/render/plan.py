"""The report of `reap`: what would be done, or what was done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from exporter.cli.render.blocks import NO_HOME, Block, Cell, Column, Line, Table, Tone
from exporter.cli.render.left_alone import left_alone, stopped
from exporter.text import counted, format_count

_COLUMNS = (Column("home", least=8, spare=2), Column("target"), Column("why", least=20, spare=1))
_OUTCOMES = {"done": Tone.GOOD, "partial": Tone.WARN, "failed": Tone.BAD}


def blocks(
    result: Mapping[str, Any],
    *,
    again: str = "",
    go_on: str = "",
    chosen: str = "",
    homes: int = 1,
    in_the_way: str = "",
) -> Iterator[Block]:
    """Yield lines and tables for the value that `reap --json` prints.

    `again` are the options to repeat in the next command, `go_on` is the command that goes on where
    this one was stopped, `chosen` are the filters of the plan, `homes` is the number of homes
    scanned, `in_the_way` says why nothing is planned although there may be something.
    """
    plan = result["plan"]
    if result["executed"] and (result["done"] or result["skipped"]):
        yield from _executed(result, again, go_on)
    elif plan["actions"]:
        yield from _table(plan["actions"])
        total = counted(len(plan["actions"]), "session")
        yield Line((Cell(f"{total} would be ended. Nothing was changed.", Tone.STRONG),))
        yield Line((Cell("To do exactly this:", Tone.FAINT),))
        yield Line(
            (Cell(f"hermes-exporter reap --plan {plan['hash']} --yes{again}"),), 1, whole=True
        )
    elif not homes:
        yield NO_HOME
    else:
        none = f"no session of {chosen}" if chosen else "no session"
        if in_the_way:
            yield Line((Cell(f"Nothing can be done now: {in_the_way}.", Tone.WARN),))
        else:
            yield Line((Cell(f"Nothing to do: {none} is dead.", Tone.FAINT),))


def _table(actions: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    yield Table(
        _COLUMNS,
        tuple(
            (
                Cell(action["home"]),
                Cell(action["target"], Tone.STRONG),
                Cell(action["reason"], Tone.FAINT),
            )
            for action in actions
        ),
    )
    yield Line()


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
