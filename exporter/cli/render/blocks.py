"""What a report is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from exporter.text import escape_control

INDENT = "  "


class Tone(StrEnum):
    """How a piece of text is meant; the renderer knows colours."""

    PLAIN = "plain"
    STRONG = "strong"
    FAINT = "faint"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


VERDICT_TONES = {
    "live": Tone.GOOD,
    "held": Tone.PLAIN,
    "dead": Tone.BAD,
    "exempt": Tone.PLAIN,
    "unknown": Tone.WARN,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of text. Names and ids are made visible here, so that no report can forget to."""

    text: str
    tone: Tone = Tone.PLAIN

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", escape_control(self.text))


@dataclass(frozen=True, slots=True)
class Bar:
    """A share of a whole, drawn."""

    ratio: float
    tone: Tone = Tone.PLAIN
    width: int = 20

    def cells(self) -> int:
        """How many of `width` are filled: at least one for any share that is not nothing."""
        if self.ratio <= 0:
            return 0
        return max(1, min(self.width, round(self.ratio * self.width)))


@dataclass(frozen=True, slots=True)
class Column:
    title: str = ""
    right: bool = False
    least: int | None = None
    """The width to which a narrow terminal may squeeze it by wrapping; None: it never is, as an id
    that is copied into the next command must not be."""
    spare: int = 0
    """Where a terminal is too narrow even so, columns are left out, the lowest number first; 0 is
    for those that never are."""


def target_column(title: str, targets: Iterable[str]) -> Column:
    """A column of ids, which stay whole, and of paths, which a narrow terminal may fold."""
    ids = [len(escape_control(each)) for each in targets if "/" not in each]
    return Column(title, least=max([22, *ids]))


@dataclass(frozen=True, slots=True)
class Line:
    """Pieces of text with a space between them; no piece is an empty line."""

    pieces: tuple[Cell, ...] = ()
    level: int = 0
    whole: bool = False
    """A command to be copied: it is never broken into two lines."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; without titles it has no header."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell | Bar, ...], ...]
    level: int = 0

    @property
    def titled(self) -> bool:
        return any(column.title for column in self.columns)


Block = Line | Table

NO_HOME = Line((Cell("No home was looked at; `hermes-exporter check` tells why.", Tone.WARN),))
"""Instead of a report that would say of nothing that it is all right."""
