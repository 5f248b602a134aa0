"""The report of `prune`: what would go, what is kept and why, and what cannot be freed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from exporter import human
from exporter.pruner.words import HomePrunePlan, Policy
from exporter.terminal.blocks import Block, Cell, Column, Line, Table, Tone

_OUTCOMES = {"done": Tone.GOOD, "partial": Tone.WARN, "failed": Tone.BAD}
_LISTED = 20
"""Items that are shown one by one; `--json` has them all."""


def blocks(
    result: Mapping[str, Any], plans: Sequence[tuple[str, HomePrunePlan]], *, again: str = ""
) -> Iterator[Block]:
    """Lines and tables for the value that `prune --json` prints, and the plans behind it.

    `again` are the options to be given to the next command as well.
    """
    actions = result["plan"]["actions"]
    if result["executed"] and (result["done"] or result["skipped"]):
        yield from _executed(result, again)
    elif actions:
        yield from _totals(actions)
        yield from _items(actions)
        for label, plan in plans:
            yield from _home(label, plan)
        yield Line((Cell("Nothing was changed.", Tone.STRONG),))
        yield Line((Cell("To do exactly this:", Tone.FAINT),))
        plan_hash = result["plan"]["hash"]
        yield Line((Cell(f"hermes-exporter prune --plan {plan_hash} --yes{again}"),), level=1)
    elif not plans:
        yield Line((Cell("No home was looked at; `hermes-exporter check` tells why.", Tone.WARN),))
    else:
        for label, plan in plans:
            yield from _home(label, plan)
        yield Line((Cell("Nothing to do: no policy may take anything.", Tone.FAINT),))


def _totals(actions: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    rows = []
    for policy in Policy:
        chosen = [each for each in actions if each["policy"] == policy.value]
        if chosen:
            size = sum(each["bytes"] for each in chosen)
            rows.append(
                (
                    Cell(policy.value, Tone.STRONG),
                    Cell(human.count(len(chosen))),
                    Cell(human.size(size)),
                )
            )
    total = sum(each["bytes"] for each in actions)
    rows.append((Cell("all"), Cell(human.count(len(actions))), Cell(human.size(total))))
    yield Table(
        (Column("policy"), Column("items", right=True), Column("bytes", right=True)), tuple(rows)
    )
    yield Line()


def _items(actions: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    yield Table(
        (
            Column("home", least=8),
            Column("target", least=22),
            Column("bytes", right=True),
            Column("why", least=20),
        ),
        tuple(
            (
                Cell(each["home"]),
                Cell(each["target"]),
                Cell(human.size(each["bytes"])),
                Cell(each["reason"], Tone.FAINT),
            )
            for each in actions[:_LISTED]
        ),
    )
    if len(actions) > _LISTED:
        more = human.count(len(actions) - _LISTED)
        yield Line((Cell(f"and {more} more; --json lists them all", Tone.FAINT),))
    yield Line()


def _home(label: str, plan: HomePrunePlan) -> Iterator[Block]:
    """What a person should know of one home before saying yes."""
    lines = list(_words(plan))
    if lines:
        yield Line((Cell(label, Tone.STRONG),))
        for text, tone in lines:
            yield Line((Cell(text, tone),), level=1)
        yield Line()


def _words(plan: HomePrunePlan) -> Iterator[tuple[str, Tone]]:
    if plan.blocked:
        yield f"blocked ({plan.blocked}): {plan.why}", Tone.BAD
    for warning in plan.warnings:
        yield f"warning: {warning}", Tone.WARN
    if plan.protected:
        kept = ", ".join(f"{human.count(each.items)} {each.rule}" for each in plan.protected)
        yield f"protected: {kept}", Tone.PLAIN
    for each in plan.unreachable:
        above = f"{each.threshold}: {human.size(each.bytes)} above its low mark"
        yield f"{above} cannot be freed: {each.reason}", Tone.WARN


def _executed(result: Mapping[str, Any], again: str) -> Iterator[Block]:
    yield from _left_alone(result["skipped"])
    said = f"{human.counted(result['done'], 'item')} taken"
    if result["skipped"]:
        said += f", {human.count(len(result['skipped']))} left alone"
    yield Line((Cell(f"{said}.", _OUTCOMES.get(result["outcome"], Tone.PLAIN)),))
    if result["run"] is not None:
        yield Line((Cell("To take it back, while its trash is kept:", Tone.FAINT),))
        yield Line((Cell(f"hermes-exporter undo {result['run']}{again}"),), level=1)


def _left_alone(skipped: Iterable[Mapping[str, Any]]) -> Iterator[Block]:
    rows = tuple(
        (Cell(each["target"], Tone.STRONG), Cell(each["why"], Tone.FAINT)) for each in skipped
    )
    if rows:
        yield Table((Column("left alone", least=22), Column("why", least=20)), rows)
        yield Line()


def purged(result: Mapping[str, Any]) -> Iterator[Block]:
    """What `purge` has done."""
    yield from _left_alone(result["skipped"])
    done = result["done"]
    said = "Nothing was purged." if result["skipped"] else "The trash is empty."
    if done:
        said = f"The trash of {human.counted(done, 'run')} is gone."
    yield Line((Cell(said, _OUTCOMES.get(result["outcome"], Tone.PLAIN)),))
