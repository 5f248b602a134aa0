"""Pictures of the agent's own pages: `python -m tests.web.pages.pictures`.

`make page-screenshots` brings the browser first. They go to docs/images.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.real.chromium import chromium
from tests.real.hermes import REPOSITORY
from tests.web.pages.sites import demo

SHOWN = REPOSITORY / "docs" / "images"
NAMED = ("unshare", "--uts", "sh", "-c", 'hostname anvil-02 && exec "$@"', "sh")
"""The pages name their host; the pictures should not name the one they were made on."""


@dataclass(frozen=True)
class Shot:
    """A page as it is opened."""

    file: str
    path: str
    width: int
    height_max: int
    theme: str = "light"


SHOTS = (
    Shot("host-page-light.png", "/?home=default", 1280, 1600),
    Shot("host-page-dark.png", "/?home=default", 1280, 1600, "dark"),
    Shot("host-page-phone.png", "/", 390, 1700),
    Shot("sessions-page.png", "/sessions", 1280, 720),
    Shot("session-page.png", "/sessions/{session}", 1280, 720),
)


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="pictures-") as folder,
        demo(Path(folder), wrapper=NAMED) as running,
        chromium() as window,
    ):
        rows = json.loads(running.get("/api/v1/sessions")[1])
        busiest = max(rows, key=lambda row: row["messages"])
        for shot in SHOTS:
            media = [{"name": "prefers-color-scheme", "value": shot.theme}]
            window.tell("Emulation.setEmulatedMedia", features=media)
            window.resize(shot.width, 900)
            window.open(running.url + shot.path.format(session=busiest["id"]))
            window.after_painting()
            height = int(window.run("return document.documentElement.scrollHeight"))
            picture = window.part(shot.width, min(height, shot.height_max))
            (SHOWN / shot.file).write_bytes(picture)
            print(shot.file, flush=True)


if __name__ == "__main__":
    main()
