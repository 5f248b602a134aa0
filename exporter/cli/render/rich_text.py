"""Blocks as wide as a terminal, by rich. Imported only for a terminal: rich is large."""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich import box
from rich.console import Console, OverflowMethod
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from exporter.cli.render.blocks import INDENT, Bar, Block, Cell, Line, Table, Tone
from exporter.cli.render.plain_text import columns_of, width_of

_STYLES = {
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.FAINT: "dim",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
}
_FULL, _EMPTY = "━", "─"
_GAP = 2


def render(
    blocks: Iterable[Block],
    width: int | None = None,
    *,
    ascii_only: bool = False,
    colour: bool = True,
) -> str:
    """Return the text of a report, as wide as the terminal, with colour codes if wanted."""
    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=colour,
        color_system="auto" if colour else None,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for block in blocks:
        if isinstance(block, Line) and not block.pieces:
            console.line()
            continue
        indent = len(INDENT) * block.level
        if isinstance(block, Line) and block.whole:
            console.print(Text(" " * indent) + _line(block), soft_wrap=True)
        elif isinstance(block, Line):
            console.print(Padding(_line(block), (0, 0, 0, indent), expand=False))
        else:
            _print_table(console, block, indent, ascii_only)
    return out.getvalue()


def _print_table(console: Console, table: Table, indent: int, ascii_only: bool) -> None:
    """Print a table. If not all columns fit, some are left out and named.

    A column that is never wrapped stays complete, even if lines become longer than the terminal.
    """
    screen = console.width
    fitting, left_out = _fitted(table, screen - indent)
    console.width = max(screen, indent + sum(_least_widths(fitting)))
    drawn = _table(fitting, ascii_only, console.width - indent)
    console.print(Padding(drawn, (0, 0, 0, indent), expand=False))
    console.width = screen
    if left_out:
        said = (
            f"{INDENT * table.level}(not shown, the terminal is too narrow: {', '.join(left_out)})"
        )
        console.print(Text(said, style=_STYLES[Tone.FAINT]))


def _fitted(table: Table, room: int) -> tuple[Table, list[str]]:
    """Return the table with as many columns as fit, and the titles of the others."""
    gone: set[int] = set()
    widths = _least_widths(table)
    spare = [index for index, column in enumerate(table.columns) if column.spare]
    for index in sorted(spare, key=lambda index: table.columns[index].spare):
        if sum(width for each, width in enumerate(widths) if each not in gone) <= room:
            break
        gone.add(index)
    kept = [index for index in range(len(widths)) if index not in gone]
    columns = tuple(table.columns[index] for index in kept)
    rows = tuple(tuple(row[index] for index in kept) for row in table.rows)
    titles = [
        each.title for index, each in enumerate(table.columns) if index in gone and each.title
    ]
    return Table(columns, rows, table.level), titles


def _line(line: Line) -> Text:
    return Text(" ").join(_text(piece) for piece in line.pieces)


def _text(cell: Cell, overflow: OverflowMethod = "fold") -> Text:
    return Text(cell.text, style=_STYLES[cell.tone], overflow=overflow)


def _table(table: Table, ascii_only: bool, room: int) -> RichTable:
    drawn = RichTable(
        box=box.SIMPLE_HEAD if table.titled and not ascii_only else None,
        show_header=table.titled,
        header_style="bold",
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0) if table.titled else (0, 2, 0, 0),
    )
    least_widths = _least_widths(table)
    for column, least in zip(table.columns, least_widths, strict=True):
        most = room - sum(least_widths) + least - _GAP
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=column.least is None or column.cut,
            min_width=least - _GAP,
            max_width=most if column.cut else None,
            overflow="ellipsis" if column.cut else "fold",
        )
    for row in table.rows:
        drawn.add_row(
            *(
                _cell(cell, ascii_only, "ellipsis" if column.cut else "fold")
                for column, cell in zip(table.columns, row, strict=True)
            )
        )
    return drawn


def _least_widths(table: Table) -> list[int]:
    """Return the smallest width of each column, with the gap after it."""
    widths = [max(map(width_of, texts), default=0) for texts in columns_of(table)]
    return [
        _GAP + (width if column.least is None else min(width, column.least))
        for width, column in zip(widths, table.columns, strict=True)
    ]


def _cell(cell: Cell | Bar, ascii_only: bool, overflow: OverflowMethod) -> Text:
    if isinstance(cell, Cell):
        return _text(cell, overflow)
    full, empty = ("#", ".") if ascii_only else (_FULL, _EMPTY)
    filled = cell.cells()
    bar = Text(full * filled, style=_STYLES[cell.tone] or "cyan")
    return bar.append(empty * (cell.width - filled), style="dim")
