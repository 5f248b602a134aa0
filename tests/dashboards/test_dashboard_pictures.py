"""The dashboards in a real Chromium, drawn by Grafana's own frontend from a real Prometheus."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.dashboards.browser import Browser
from tests.dashboards.history import HOUR
from tests.dashboards.pictures import SHOTS, THEMES, Shot, look, open_browser
from tests.real.hermes import REPOSITORY

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("pictures"), pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, float]]:
    """And the moment that all look at."""
    subprocess.run([REPOSITORY / "scripts" / "render-dashboards.sh"], check=True)
    with open_browser(tmp_path_factory.mktemp("pictures")) as opened:
        yield opened, time.time()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.dashboard)
def test_no_panel_is_in_error_or_empty(
    shot: Shot, theme: str, window: tuple[Browser, float]
) -> None:
    looked = look(window[0], shot, theme, window[1])
    assert looked.troubles() == []


@pytest.mark.parametrize("instance", ["mill-01:10749", "mill-02:10749"])
def test_a_real_host_has_no_panel_in_error(instance: str, window: tuple[Browser, float]) -> None:
    """It has less than everything; what is empty says why."""
    looked = look(window[0], Shot("hermes-host", HOUR, instance), "light", window[1])
    assert looked.errors == []
    assert [panel["title"] for panel in looked.panels if panel["error"]] == []
    assert window[0].run("return document.querySelectorAll('.no-data').length") == len(
        [panel for panel in looked.panels if not panel["series"] and panel["type"] != "stat"]
    )
