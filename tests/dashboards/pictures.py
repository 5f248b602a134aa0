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
    """A dashboard as somebody would open it."""

    dashboard: str
    back: float
    """How far it looks back, in seconds."""
    instance: str = ""
    height: int = 1400
    """Of its first screens, in pixels."""


SHOTS = (
    Shot("hermes-fleet", DAY, height=1470),
    Shot("hermes-host", 6 * HOUR, "anvil-02:10749", height=1506),
    Shot("hermes-agent", 6 * HOUR, height=1290),
)


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
    chosen = {"instance": shot.instance} if shot.instance else {}
    return window.look(shot.dashboard, theme, now - shot.back, now, **chosen)


def main() -> None:
    for folder in (WHOLE, SHOWN):
        folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="pictures-") as name,
        open_browser(Path(name)) as window,
    ):
        now = time.time()
        for shot in SHOTS:
            for theme in THEMES:
                looked = look(window, shot, theme, now)
                file = f"{shot.dashboard}-{theme}.png"
                print(file, *looked.troubles(), sep="\n  ", flush=True)
                (WHOLE / file).write_bytes(looked.picture)
                if looked.troubles():
                    sys.exit(f"error: {shot.dashboard} has panels in trouble")
                (SHOWN / file).write_bytes(window.first_screens(shot.height))


if __name__ == "__main__":
    main()
