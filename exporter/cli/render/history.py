"""The reports of `history` and `undo`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from exporter.agent.run_history import UndoReport
from exporter.cli.render.blocks import Block, Cell, Column, Line, Table, Tone, target_column
from exporter.cli.render.left_alone import left_alone, stopped
from exporter.runs.models import TRIMMED, Run, RunOutcome
from exporter.text import counted, format_age, format_count, format_size

_COLUMNS = (
    Column("run"),
    Column("home", least=8, spare=5),
    Column("kind"),
    Column("begun", right=True, spare=1),
    Column("outcome", spare=6),
    Column("actions", right=True, spare=2),
    Column("bytes", right=True, spare=3),
    Column("undo within", right=True, spare=4),
)
_HOMES_NAMED = 5
_STATES = {"done": Tone.GOOD, "undone": Tone.PLAIN}
_OUTCOMES = {"done": Tone.GOOD, "partial": Tone.WARN, "failed": Tone.BAD}


def history(runs: Sequence[Mapping[str, Any]], now: float) -> Iterator[Block]:
    """Yield lines and tables for the value that `history --json` prints."""
    if runs:
        yield Table(_COLUMNS, tuple(_row(run, now) for run in runs))
        yield Line()
    total = counted(len(runs), "run") if runs else "No runs are noted: nothing was done here"
    yield Line((Cell(total, Tone.FAINT),))


def _row(run: Mapping[str, Any], now: float) -> tuple[Cell, ...]:
    outcome = run["outcome"] or "under way"
    return (
        Cell(run["run"], Tone.STRONG),
        Cell(run["home"]),
        Cell(run["kind"]),
        Cell(f"{format_age(now - run['started_at'])} ago"),
        Cell(outcome, _OUTCOMES.get(outcome, Tone.WARN)),
        Cell(format_count(run["actions"])),
        Cell(format_size(run["bytes"]) if run["bytes"] else ""),
        Cell(_left(run["undoable_until"], now)),
    )


def _left(until: float | None, now: float) -> str:
    if until is None:
        return ""
    return format_age(until - now) if until > now else "over"


def one_run(rows: Sequence[Mapping[str, Any]], now: float) -> Iterator[Block]:
    """Yield lines and tables for the value that `history RUN --json` prints."""
    for row in rows:
        yield Table(_COLUMNS, (_row(row, now),))
        if row["why"]:
            yield Line((Cell(f"It was stopped: {row['why']}", Tone.WARN),))
        if trimmed := row.get("trimmed", 0):
            said = f"{counted(trimmed, 'item')} no longer listed: {TRIMMED}."
            yield Line((Cell(said, Tone.FAINT),))
        yield Line()
        yield _items(row["items"])
        yield Line()


def _items(items: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        (
            target_column("target", (each["target"] for each in items)),
            Column("action", spare=1),
            Column("policy", spare=3),
            Column("bytes", right=True),
            Column("state"),
            Column("why", least=20, spare=2),
        ),
        tuple(
            (
                Cell(each["target"], Tone.STRONG),
                Cell(each["action"]),
                Cell(each["policy"] or ""),
                Cell(format_size(each["bytes"]) if each["bytes"] else ""),
                Cell(each["state"], _STATES.get(each["state"], Tone.WARN)),
                Cell(each["why"] or each["reason"], Tone.FAINT),
            )
            for each in items
        ),
    )


def undo_announcement(
    taken: Sequence[tuple[str, Run]], newest: Sequence[tuple[str, Run]], now: float
) -> Iterator[str]:
    """Yield a line that says which run is undone, and one if that is not the newest.

    Both arguments are what the run did, with the label of the home.
    """
    if newest:
        given_back = all(run.undone == run.actions for _, run in newest)
        why = "was given back before" if given_back else "has no trash any more"
        yield (
            f"the newest run, {_briefly(newest, now)}, {why} and cannot be undone; "
            "this is the last that can be"
        )
    actions = counted(sum(run.actions for _, run in taken), "action")
    before = sum(run.undone for _, run in taken)
    given = f", {format_count(before)} of them given back before" if before else ""
    homes = [home for home, _ in taken]
    named = ", ".join(homes) if len(homes) <= _HOMES_NAMED else counted(len(homes), "home")
    yield f"undo of {_briefly(taken, now)}: {actions} in {named}{given}"


def _briefly(runs: Sequence[tuple[str, Run]], now: float) -> str:
    _, run = runs[0]
    begun = min(each.started_at for _, each in runs)
    who = "by hand" if run.by_hand else "by the agent"
    return f"{run.id} ({run.label} {who}, begun {format_age(max(0, now - begun))} ago)"


def undo_result(report: UndoReport, planned: int, again: str) -> Iterator[Block]:
    """Yield what an undo restored of the planned items, and what it could not."""
    result = report.outcome
    yield from left_alone(to_builtins(result.skipped), "not given back")
    if result.outcome is RunOutcome.INTERRUPTED:
        done, of = format_count(len(result.done)), counted(planned, "item")
        said = f"Interrupted: {done} of {of} of run {result.run} given back."
        yield from stopped(said, go_on=f"hermes-exporter undo {result.run}{again}")
        return
    if not result.is_known:
        said = f"Not known what was given back; repeat `hermes-exporter undo {result.run}`."
        yield Line((Cell(said, Tone.BAD),))
        return
    tone = Tone.WARN if result.skipped else Tone.GOOD
    restored = counted(len(result.done), "item")
    yield Line((Cell(f"{restored} of run {result.run} given back.", tone),))
    if result.done:
        yield Line((Cell(_held(report), Tone.FAINT),))


def _held(report: UndoReport) -> str:
    """Return for how long no run does the same again."""
    held = format_age(report.held_seconds)
    if report.is_of_reap:
        said = f"For {held} no reap ends them again, and no prune takes them"
    else:
        said = f"For {held} (prune.keep.undone) no run takes it again"
    return f"{said}, unless --include-undone says so."
