"""Blocks as aligned text, for pipes, files and terminals without colour.

Nothing is wrapped or cut, so that `grep`, `awk` and a diff see complete ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from unicodedata import combining, east_asian_width

from exporter.cli.render.blocks import INDENT, Bar, Block, Cell, Line, Table

_GAP = "  "


def render(blocks: Iterable[Block]) -> str:
    """Return the text of a report."""
    lines: list[str] = []
    for block in blocks:
        lines.extend([_line(block)] if isinstance(block, Line) else _table(block))
    return "".join(line.rstrip() + "\n" for line in lines)


def _line(line: Line) -> str:
    return INDENT * line.level + " ".join(piece.text for piece in line.pieces)


def _table(table: Table) -> list[str]:
    columns = columns_of(table)
    widths = [max(map(width_of, texts), default=0) for texts in columns]
    return [
        INDENT * table.level
        + _GAP.join(
            _padded(text, width, column.right)
            for text, width, column in zip(row, widths, table.columns, strict=True)
        )
        for row in zip(*columns, strict=True)
    ]


def columns_of(table: Table) -> list[list[str]]:
    """Return the texts of each column, with its title first if there is one."""
    return [
        ([column.title.upper()] if table.titled else []) + [_text(row[index]) for row in table.rows]
        for index, column in enumerate(table.columns)
    ]


def _text(cell: Cell | Bar) -> str:
    return "#" * cell.cells() if isinstance(cell, Bar) else cell.text


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def width_of(text: str) -> int:
    """Return the width on a screen: wide characters take two columns, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(character) else 1 + (east_asian_width(character) in "WF")
        for character in text
    )
