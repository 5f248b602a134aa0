"""Pictures of the dashboards, light and dark: `python -m tests.dashboards.pictures`.

`make screenshots` builds the page first. Whole dashboards go to .cache/render/pictures, their first
screens to docs/images.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.dashboards.browser import Browser, Looked, browser
from tests.dashboards.history import DAY, FLEET, HOUR, all_day
from tests.dashboards.stage import stage
from tests.dashboards.troubled import dead, killed_chats, troubled_agent
from tests.real.hermes import REPOSITORY
from tests.support.running_agent import when

WHOLE = REPOSITORY / ".cache" / "render" / "pictures"
SHOWN = REPOSITORY / "docs" / "images"
THEMES = ("light", "dark")


@dataclass(frozen=True)
class Shot:
    """A dashboard as a person would open it."""

    dashboard: str
    back: float
    """How far it looks back, in seconds."""
    instance: str = ""
    height: int = 1400
    """Of its first screens, in pixels."""
    home: str = ""
    section: str = ""
    """Where its picture begins, if not at the top."""
    picture: str = ""
    """The name of its picture, if not that of the dashboard."""


SHOTS = (
    Shot("hermes-fleet", DAY, height=1470),
    Shot("hermes-host", 6 * HOUR, "anvil-02:10749", height=1466),
    Shot("hermes-agent", 6 * HOUR, height=1290),
)
PRUNING = Shot(
    "hermes-host",
    DAY,
    "anvil-01:10749",
    height=1712,
    home="default",
    section="Disk",
    picture="hermes-host-disk",
)
"""Bytes of transcripts and checkpoints, thresholds with their watermarks, a prune at work."""
_STEPS = 1800.0
"""The steps of all panels divide this and ten minutes, so that all end at the same moment."""


def one_moment() -> float:
    """A moment that the queries of all panels end at, a little back.

    It is no full or half hour: the label of an axis at its end would be cut off.
    """
    return time.time() // _STEPS * _STEPS - 600


@contextmanager
def open_past(folder: Path, moment: float) -> Iterator[Browser]:
    """Before a Prometheus with a day of the fleet that ends at the moment."""
    with (
        stage(folder, FLEET, all_day, {}, rules_of_the_past=True, until=moment) as server,
        browser(server.url) as window,
    ):
        yield window


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """Before a Prometheus with everything: a day of the fleet, and real agents in trouble."""
    with ExitStack() as stack:
        agents = {}
        for name, troubled in (("mill-01:10749", troubled_agent), ("mill-02:10749", killed_chats)):
            own = folder / name.partition(":")[0]
            own.mkdir()
            running = stack.enter_context(troubled(own))
            when(running, lambda metrics: dead(metrics) > 0, "leaked sessions are found dead")
            agents[name] = running.address
        server = stack.enter_context(stage(folder, FLEET, all_day, agents, rules_of_the_past=True))
        yield stack.enter_context(browser(server.url))


def look(window: Browser, shot: Shot, theme: str, now: float) -> Looked:
    asked = {"instance": shot.instance, "home": shot.home}
    chosen = {name: value for name, value in asked.items() if value}
    return window.look(shot.dashboard, theme, now - shot.back, now, **chosen)


def main() -> None:
    for folder in (WHOLE, SHOWN):
        folder.mkdir(parents=True, exist_ok=True)
    moment = one_moment()
    with (
        tempfile.TemporaryDirectory(prefix="pictures-") as name,
        open_past(Path(name), moment) as window,
    ):
        for shot in (*SHOTS, PRUNING):
            for theme in THEMES:
                looked = look(window, shot, theme, moment)
                file = f"{shot.picture or shot.dashboard}-{theme}.png"
                print(file, *looked.troubles(), sep="\n  ", flush=True)
                (WHOLE / file).write_bytes(looked.picture)
                if looked.troubles():
                    sys.exit(f"error: {shot.dashboard} has panels in trouble")
                (SHOWN / file).write_bytes(window.screens(shot.height, shot.section))


if __name__ == "__main__":
    main()
