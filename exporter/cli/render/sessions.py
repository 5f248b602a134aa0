"""The report of `sessions`: each open session, its verdict and its strongest evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
        left_out = _constant_columns(sessions)
        columns = tuple(each for each in _COLUMNS if each.title not in left_out)
        yield Table(columns, tuple(_row(each, now, left_out) for each in sessions))
        yield Line()
    total = counted(len(sessions), "open session") if sessions else "No open sessions"
    yield Line((Cell(f"{total} with {chosen}" if chosen else total, Tone.FAINT),))


def _constant_columns(sessions: Sequence[Session]) -> set[str]:
    """Return which of home and source are the same in many rows; they are not shown."""
    if len(sessions) < _MANY:
        return set()
    return {name for name in _MAY_GO if len({each[name] for each in sessions}) == 1}


def _row(session: Session, now: float, left_out: Collection[str]) -> tuple[Cell, ...]:
    verdict = session["verdict"]
    return (
        *((Cell(session["home"]),) if "home" not in left_out else ()),
        Cell(session["id"], Tone.STRONG),
        *((Cell(session["source"]),) if "source" not in left_out else ()),
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
