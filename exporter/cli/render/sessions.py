"""The report of `sessions`: each open session, its verdict and its strongest evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from exporter.cli.render.blocks import (
    NO_HOME,
    VERDICT_TONES,
    Block,
    Cell,
    Column,
    Line,
    Table,
    Tone,
)
from exporter.text import counted, format_age, format_count

Session = Mapping[str, Any]
_MAY_GO = ("home", "source")
_MANY = 3

_COLUMNS = (
    Column("home", least=8, spare=3),
    Column("session"),
    Column("source", spare=4),
    Column("age", right=True, spare=1),
    Column("idle", right=True, spare=2),
    Column("msgs", right=True, spare=5),
    Column("verdict"),
    Column("evidence", least=20, spare=6),
)


def blocks(
    sessions: Sequence[Session], filters: Mapping[str, str], now: float, *, homes: int = 1
) -> Iterator[Block]:
    """Yield lines and tables for the value that `sessions --json` prints.

    `filters` are the given filters, `homes` is the number of homes read.
    """
    if not homes and not sessions:
        yield NO_HOME
        return
    chosen = ", ".join(f"{name} {value}" for name, value in filters.items())
    if sessions:
        yield _without_constant(Table(_COLUMNS, tuple(_row(each, now) for each in sessions)))
        yield Line()
    total = counted(len(sessions), "open session") if sessions else "No open sessions"
    yield Line((Cell(f"{total} with {chosen}" if chosen else total, Tone.FAINT),))


def _without_constant(table: Table) -> Table:
    """Return the table without home and source where they are the same in many rows."""
    kept = [
        index
        for index, column in enumerate(table.columns)
        if column.title not in _MAY_GO
        or len(table.rows) < _MANY
        or len({row[index] for row in table.rows}) > 1
    ]
    return Table(
        tuple(table.columns[index] for index in kept),
        tuple(tuple(row[index] for index in kept) for row in table.rows),
    )


def _row(session: Session, now: float) -> tuple[Cell, ...]:
    verdict = session["verdict"]
    return (
        Cell(session["home"]),
        Cell(session["id"], Tone.STRONG),
        Cell(session["source"]),
        Cell(_age(session["started_at"], now)),
        Cell(_age(session["last_activity_at"], now)),
        Cell(format_count(session["messages"])),
        Cell(verdict, VERDICT_TONES.get(verdict, Tone.PLAIN)),
        Cell(_strongest(session["evidence"]), Tone.FAINT),
    )


def _age(moment: float | None, now: float) -> str:
    return "?" if moment is None else format_age(now - moment)


def _strongest(evidence: Sequence[Mapping[str, Any]]) -> str:
    """Return the first piece of evidence: the strongest comes first."""
    if not evidence:
        return ""
    first = evidence[0]
    return f"{first['kind']}: {first['detail'] or first['says']}"
