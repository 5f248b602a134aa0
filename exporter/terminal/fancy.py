"""Blocks with colour, by rich. Imported only when the output is a terminal: rich is not small."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from exporter.terminal.blocks import INDENT, Bar, Block, Cell, Line, Table, Tone
from exporter.terminal.plain import columns_of, width_of

_STYLES = {
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.FAINT: "dim",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
}
_FULL, _EMPTY = "━", "─"


def render(blocks: Iterable[Block], width: int | None = None, *, ascii_only: bool = False) -> str:
    """The text of a report with its colour codes, as wide as the terminal."""
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=True, width=width, highlight=False, markup=False, emoji=False
    )
    for block in blocks:
        if isinstance(block, Line) and not block.pieces:
            console.line()
            continue
        indent = len(INDENT) * block.level
        content: RenderableType
        if isinstance(block, Line):
            content = _line(block)
        else:
            content = _table(block, console.width - indent, ascii_only)
        console.print(Padding(content, (0, 0, 0, indent), expand=False))
    return out.getvalue()


def _line(line: Line) -> Text:
    return Text(" ").join(_text(piece) for piece in line.pieces)


def _text(cell: Cell) -> Text:
    return Text(cell.text, style=_STYLES[cell.tone], overflow="fold")


def _table(table: Table, room: int, ascii_only: bool) -> RichTable:
    """Where even the least widths do not fit, every column is wrapped: nothing is ever cut off."""
    crowded = sum(_least_widths(table)) > room
    drawn = RichTable(
        box=box.SIMPLE_HEAD if table.titled and not ascii_only else None,
        show_header=table.titled,
        header_style="bold",
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0) if table.titled else (0, 2, 0, 0),
    )
    for column in table.columns:
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=column.least is None and not crowded,
            min_width=None if crowded else column.least,
            overflow="fold",
        )
    for row in table.rows:
        drawn.add_row(*(_cell(cell, ascii_only) for cell in row))
    return drawn


def _least_widths(table: Table) -> list[int]:
    """Of each column and the gap after it."""
    gap = 2
    widths = [max(map(width_of, texts), default=0) for texts in columns_of(table)]
    return [
        gap + (width if column.least is None else min(width, column.least))
        for width, column in zip(widths, table.columns, strict=True)
    ]


def _cell(cell: Cell | Bar, ascii_only: bool) -> Text:
    if isinstance(cell, Cell):
        return _text(cell)
    full, empty = ("#", ".") if ascii_only else (_FULL, _EMPTY)
    filled = cell.cells()
    bar = Text(full * filled, style=_STYLES[cell.tone] or "cyan")
    return bar.append(empty * (cell.width - filled), style="dim")
