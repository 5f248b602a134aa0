"""What the agent may do."""

from __future__ import annotations

from enum import StrEnum

from exporter.config.units import choice


class Mode(StrEnum):
    """`observe` changes nothing and is the default; only `enforce` lets the agent act."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


MODE = choice("mode", Mode)
