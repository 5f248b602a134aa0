"""A progress bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ReportProgress = Callable[[str, int, int], None]
"""Called with what is in progress, and how many of how many steps are done."""


@contextmanager
def progress_bar() -> Iterator[ReportProgress]:
    """Yield a function that takes progress. It draws on stderr, so that stdout stays a report."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: dict[str, int] = {}
    with bars:

        def told(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = int(bars.add_task(label, total=total))
            bars.update(tasks[label], completed=done, total=total)  # type: ignore[arg-type]

        yield told
