"""The parts of a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from exporter.text import escape_control

INDENT = "  "
_LONGEST_WHOLE = 56
"""On a terminal of 80 columns longer names end in `…`; an id in them comes before that."""


class Tone(StrEnum):
    """The meaning of a piece of text; the renderer chooses the colour."""

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
    """A piece of text. Control characters are made visible here, so no report can forget it."""

    text: str
    tone: Tone = Tone.PLAIN

    def __post_init__(self) -> None:
        if not self.text.isprintable():
            object.__setattr__(self, "text", escape_control(self.text))


@dataclass(frozen=True, slots=True)
class Bar:
    """A share of a whole, drawn as a bar."""

    ratio: float
    tone: Tone = Tone.PLAIN
    width: int = 20

    def cells(self) -> int:
        """Return how many of `width` are filled: at least one for any share above 0."""
        if self.ratio <= 0:
            return 0
        return max(1, min(self.width, round(self.ratio * self.width)))


@dataclass(frozen=True, slots=True)
class Column:
    title: str = ""
    right: bool = False
    least: int | None = None
    """The smallest width on a narrow terminal, by wrapping; None: it is never wrapped, such as an
    id that is copied into the next command.
    """
    cut: bool = False
    """Below its full width it is not wrapped: what does not fit is cut off, with a `…`."""
    spare: int = 0
    """If a terminal is still too narrow, columns are left out, the lowest number first; 0: never
    left out.
    """


def target_column(title: str, targets: Iterable[str]) -> Column:
    """Return a column of ids and paths, which are never wrapped.

    The end of what is longer than a terminal is cut off, such as the time of a request dump.
    """
    lengths = [len(escape_control(each)) for each in targets]
    return Column(title, least=min(_LONGEST_WHOLE, max([22, *lengths])), cut=True)


@dataclass(frozen=True, slots=True)
class Line:
    """Pieces of text with a space between them; without pieces it is an empty line."""

    pieces: tuple[Cell, ...] = ()
    level: int = 0
    whole: bool = False
    """A command to copy: it is never broken into two lines."""


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
"""Shown instead of a report that would call nothing all right."""
