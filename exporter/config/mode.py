"""How far the agent may go."""

from __future__ import annotations

from enum import StrEnum

from exporter.config.units import choice


class Mode(StrEnum):
    """Observe harms nothing and is the default; only `enforce` lets the agent act."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


MODE = choice("mode", Mode)
