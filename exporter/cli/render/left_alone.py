"""What a run left alone, and the end of a run that a person stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from exporter.cli.render.blocks import Block, Cell, Column, Line, Table, Tone, target_column
from exporter.runs.models import STOPPED
from exporter.text import counted

_LISTED: Final = 3
"""Items with the same reason are named up to this number; of more only their number is said."""


def left_alone(skipped: Sequence[Mapping[str, Any]], title: str = "left alone") -> Iterator[Block]:
    """Yield what was left alone and why, equal reasons once; not what a stopped run did not reach.

    That is as it was, and the last line says how much it is.
    """
    by_reason: dict[str, list[str]] = {}
    for each in skipped:
        if each["why"] != STOPPED:
            by_reason.setdefault(each["why"], []).append(each["target"])
    rows = [
        (target, why)
        for why, targets in by_reason.items()
        for target in (targets if len(targets) <= _LISTED else [counted(len(targets), "item")])
    ]
    if rows:
        yield Table(
            (target_column(title, (target for target, _ in rows)), Column("why", least=20)),
            tuple((Cell(target, Tone.STRONG), Cell(why, Tone.FAINT)) for target, why in rows),
        )
        yield Line()


def stopped(said: str, *, undo: str = "", go_on: str) -> Iterator[Block]:
    """Yield the last lines of a run that a person stopped: what it did, and both ways from here."""
    yield Line((Cell(said, Tone.WARN),))
    if undo:
        yield Line((Cell("To take it back:", Tone.FAINT),))
        yield Line((Cell(undo),), 1, whole=True)
    yield Line((Cell("To go on:", Tone.FAINT),))
    yield Line((Cell(go_on),), 1, whole=True)
