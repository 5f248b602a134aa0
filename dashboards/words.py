"""Texts and colours that several dashboards share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Final

from dashboards.panels import LOOK, NOW, PLAIN, QUIET, WELL
from exporter.collectors import collectors
from exporter.collectors.series_budget import values_of
from exporter.reaper.models import UnknownReason

DAYS: Final = "count:days"
MINUTES: Final = "count:min"
"""Units of times that are long: Grafana's own unit for seconds chooses "1.32 weeks"."""
REMAINDER: Final = "other"
_CALM: Final = [
    f"{shade}{hue}"
    for shade in ("", "light-", "dark-")
    for hue in ("blue", "green", "purple", "yellow")
]
"""Colours without a meaning: neither orange nor red, which Grafana's own palette soon uses."""


def distinct_colours(names: Sequence[str]) -> Mapping[str, str]:
    """Return a colour for each name, the same in every panel; a remainder is grey."""
    calm = cycle(_CALM)
    return {name: QUIET if name == REMAINDER else next(calm) for name in names}


KINDS: Final = distinct_colours(sorted(values_of("hermes_disk_bytes", "kind")))
POLICIES: Final = distinct_colours(sorted(values_of("hermes_retention_eligible", "policy")))
THRESHOLDS: Final = distinct_colours(sorted(values_of("hermes_prune_threshold_value", "threshold")))
TOKENS: Final = distinct_colours(sorted(values_of("hermes_tokens_total", "kind")))
PROCESSES: Final = distinct_colours(sorted(values_of("hermes_processes", "kind")))
PROJECTS: Final = distinct_colours(
    [
        f"{layout} {state}"
        for layout in values_of("hermes_checkpoint_projects", "layout")
        for state in values_of("hermes_checkpoint_projects", "state")
    ]
)
# Open sets: these are the usual values; others get a colour of Grafana's own palette.
SOURCES: Final = distinct_colours(
    ["cli", "cron", "telegram", "discord", "tui", "api_server", "slack", "desktop", REMAINDER]
)
ENDINGS: Final = distinct_colours(
    [
        *("cli_close", "cron_complete", "session_reset", "reaped", "agent_close", "compression"),
        *("tui_close", "ws_orphan_reap", "new_session", "idle", REMAINDER),
    ]
)
COLLECTORS: Final = distinct_colours(sorted(collector.name for collector in collectors()))

VERDICTS: Final = {
    "live": WELL,
    "held": "blue",
    "dead": LOOK,
    "exempt": "purple",
    "unknown": QUIET,
}
"""Colours of the verdicts on open sessions."""

WAITS_FOR: Final = distinct_colours([reason.value for reason in UnknownReason])
"""Colours of the reasons for an unknown verdict."""

OUTCOMES: Final = {"done": WELL, "partial": LOOK, "failed": NOW, "interrupted": LOOK}
"""Colours of the outcomes of runs."""

UP: Final = {"0": ("down", NOW), "1": ("up", WELL)}
READABLE: Final = {"0": ("unreadable", NOW), "1": ("yes", PLAIN)}
SOUND: Final = {"0": ("damaged", NOW), "1": ("sound", WELL)}
BREAKER: Final = {"0": ("closed", PLAIN), "1": ("open", NOW)}
RELOADED: Final = {"0": ("reload failed", LOOK), "1": ("in use", PLAIN)}
DOWN: Final = {"-1": ("agent down", NOW), "0": ("home unreadable", NOW)}
BLOCKED: Final = {"0": ("no", QUIET), "1": ("blocked", LOOK)}
MODE: Final = {"0": ("observe", PLAIN), "1": ("enforce", "blue")}

HIGH = "high watermark"
LOW = "low watermark"
WATERMARKS: Final = {HIGH: NOW, LOW: LOOK}

NO_AGENT = "No answer from an agent: is it running, and is it scraped?"
NO_RULES = "No data: are the recording rules loaded?"
NO_PRUNER = "No figures of the pruner in this time"
