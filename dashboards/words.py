"""Texts and colours that several dashboards share."""

from __future__ import annotations

from typing import Final

from dashboards.panels import LOOK, NOW, PLAIN, QUIET, WELL

VERDICTS: Final = {"live": WELL, "held": "blue", "dead": NOW, "unknown": QUIET}
"""Colours of the verdicts on open sessions."""

OUTCOMES: Final = {"done": WELL, "partial": LOOK, "failed": NOW}
"""Colours of the outcomes of runs."""

UP: Final = {"0": ("down", NOW), "1": ("up", WELL)}
READABLE: Final = {"0": ("unreadable", NOW), "1": ("yes", PLAIN)}
SOUND: Final = {"0": ("damaged", NOW), "1": ("sound", WELL)}
BREAKER: Final = {"0": ("closed", PLAIN), "1": ("open", NOW)}
RELOADED: Final = {"0": ("reload failed", LOOK), "1": ("in use", PLAIN)}
DOWN: Final = {"-1": ("agent down", NOW), "0": ("home unreadable", NOW)}
BLOCKED: Final = {"0": ("no", QUIET), "1": ("blocked", LOOK)}
MODE: Final = {"0": ("observe", PLAIN), "1": ("enforce", "blue")}

HIGH = "high mark"
LOW = "low mark"
MARKS: Final = {HIGH: NOW, LOW: LOOK}

NO_AGENT = "No answer from an agent: is it running, and is it scraped?"
NO_RULES = "No data: are the recording rules loaded?"
NO_PRUNER = "No figures of the pruner in this time"
