"""How far the agent may go."""

from __future__ import annotations

from enum import StrEnum

from exporter.config.units import choice


class Mode(StrEnum):
    """Observe harms nothing and is the default; only `enforce` lets the agent act."""

    OBSERVE = "observe"
    ENFORCE = "enforce"


MODE = choice("mode", Mode)


def in_force(configured: Mode) -> Mode:
    """The mode that is really in force: this version only observes, whatever is configured."""
    return Mode.OBSERVE if configured is Mode.ENFORCE else configured
