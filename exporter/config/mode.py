"""What the agent may do, and when."""

from __future__ import annotations

from enum import StrEnum

from exporter.config.units import choice


class Mode(StrEnum):
    """`observe` changes nothing and is the default; only `enforce` lets the agent act."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


MODE = choice("mode", Mode)


class When(StrEnum):
    """What starts an automatic prune."""

    PRESSURE = "pressure"
    """A threshold is crossed."""
    AGE = "age"
    """Once a day: whatever is past its policy."""


WHEN = choice("when", When)
