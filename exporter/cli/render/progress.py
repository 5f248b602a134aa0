"""A progress bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

ReportProgress = Callable[[str, int, int], None]
"""Called with what is in progress, and how many of how many steps are done."""


@contextmanager
def progress_bar() -> Iterator[ReportProgress]:
    """Yield a function that takes progress. It draws on stderr, so that stdout stays a report.

    Before the first progress nothing is drawn and nothing loaded.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda *_: None
        return
    tasks: dict[str, TaskID] = {}
    drawn: list[Progress] = []
    with ExitStack() as stack:

        def told(label: str, done: int, total: int) -> None:
            if not drawn:
                drawn.append(stack.enter_context(_bars()))
            if label not in tasks:
                tasks[label] = drawn[0].add_task(label, total=total)
            drawn[0].update(tasks[label], completed=done, total=total)

        yield told


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
