"""What the rows of a run journal may hold.

The readers refuse all else, and a repair keeps nothing else: a repaired journal can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from exporter.runs.models import ActionState, RunKind, RunOutcome
from exporter.runs.totals import RunTotals, Time, Total
from exporter.snapshot import Word

Why = Annotated[str, Meta(max_length=1000)]
_Number = Annotated[int, Meta(ge=0, le=1 << 53)]
_Bytes = Annotated[int, Meta(ge=0, le=1 << 48)]
"""SQLite refuses to add up more than 2^63."""
_Bool = Annotated[int, Meta(ge=0, le=1)]


class _Row(Struct, array_like=True, forbid_unknown_fields=True):
    """The columns of a table, in order."""


class NotedRun(_Row):
    id: Word
    kind: RunKind
    plan: Word
    by_hand: _Bool
    started_at: Time
    finished_at: Time | None
    outcome: RunOutcome | None
    why: Why
    undoable_until: Time | None


class NotedAction(_Row):
    run: Word
    number: _Number
    action: Word
    policy: str
    target: str
    reason: str
    bytes: _Bytes
    before: str
    after: str
    evidence: str
    reverses_run: Word | None
    reverses_number: _Number | None
    state: ActionState
    why: str
    settled_at: Time | None


class NotedPast(_Row):
    run: Word
    actions: Total
    bytes: _Bytes
    undone: Total
    lines: Total
    sole_action: str


class _Breaker(_Row):
    tripped_at: Time
    why: Why


class _Stranger(_Row):
    target: str
    mark: str
    seen_at: Time


class _Trimmed(_Row):
    totals: bytes


ROWS: Final[dict[str, type[_Row]]] = {
    "runs": NotedRun,
    "actions": NotedAction,
    "breaker": _Breaker,
    "strangers": _Stranger,
    "trimmed": _Trimmed,
    "trimmed_runs": NotedPast,
}
DAMAGE: Final = (ValueError, TypeError, OverflowError, RecursionError, msgspec.DecodeError)
"""What it raises to read what no run writes; text that is not UTF-8 is a ValueError."""


class _Object(Struct):
    """Any JSON object."""


class _After(_Object):
    """With what every reader of an action uses of its result."""

    group: _Number | None = None
    frees: str | None = None


_OBJECT: Final = msgspec.json.Decoder(_Object)
_AFTER: Final = msgspec.json.Decoder(_After)
_LIST: Final = msgspec.json.Decoder(list[Any])
_TOTALS: Final = msgspec.msgpack.Decoder(RunTotals)
AnyRow = TypeVar("AnyRow", bound=_Row)


def checked(row: Sequence[Any], table: type[AnyRow]) -> AnyRow:
    """Return a row with the types of its table; raise one of `DAMAGE` if no run writes it."""
    found = msgspec.convert(row, table)
    if isinstance(found, NotedAction):
        _OBJECT.decode(found.before)
        _AFTER.decode(found.after)
        _LIST.decode(found.evidence)
    elif isinstance(found, _Trimmed):
        totals_of(found.totals)
    return found


def totals_of(stored: Any) -> RunTotals:
    """Return totals as the table `trimmed` has them."""
    return _TOTALS.decode(stored)
