"""A real Hermes that prunes or writes on request; see `inside/keeper.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.hermes import ProgramChannel, channel_to


class MaintainingHermes:
    """The client side of `inside/keeper.py`."""

    def __init__(self, line: ProgramChannel) -> None:
        self._line = line

    def ask(self, do: str, **arguments: Any) -> Any:
        self._line.send({"do": do, **arguments})
        return self._line.receive()


@contextmanager
def maintaining_hermes(home: Path) -> Iterator[MaintainingHermes]:
    """Start a Hermes of the newest release with this home's database open."""
    with channel_to("keeper", home) as line:
        yield MaintainingHermes(line)
