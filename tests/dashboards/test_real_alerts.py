"""Homes in bad states, made with the real Hermes: the alerts that fire, and no others."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.dashboards.hasty import configuration
from tests.dashboards.troubled import BROKEN, LEAKY, LOST, troubled_agent
from tests.real.agent import Agent
from tests.real.prometheus import free_port, prometheus
from tests.real.waiting import wait_until

DEMANDING = """
marathon: {max_messages: 2}
prune: {interval: 1s, thresholds: {transcripts: {high: 2kB, low: 1kB}}}
"""

FIRING = 'ALERTS{alertstate="firing"}'


def reload(agent: Agent, file: Path, more: str) -> None:
    """Tell the agent to read its configuration with something added to it."""
    file.write_text(file.read_text() + more)
    agent.process.send_signal(signal.SIGHUP)


@pytest.mark.xdist_group("dashboards")
def test_what_is_wrong_is_told_and_nothing_else(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    file = tmp_path / "hermes-exporter.yml"
    with troubled_agent(tmp_path) as running:
        reload(running, file, DEMANDING)
        wait_until(
            lambda: any(
                running.metrics().by("hermes_prune_pressure", "home", "threshold").values()
            ),
            "a threshold is crossed",
        )
        reload(running, file, "scan: {interval: soon}\n")
        here = running.address
        expected = {
            ("HermesAgentDown", nobody, ""),
            ("HermesConfigReloadFailed", here, ""),
            ("HermesDatabaseCorrupt", here, BROKEN),
            ("HermesHomeUnreadable", here, BROKEN),
            ("HermesKanbanDeadOwner", here, LEAKY),
            ("HermesLocklessHolders", here, LOST),
            ("HermesMarathonOverLimit", here, LEAKY),
            ("HermesPersistenceDead", here, LOST),
            ("HermesPruneThresholdUnreachable", here, LEAKY),
        }
        with prometheus([], configuration=configuration(tmp_path, [here, nobody], [])) as server:

            def firing() -> set[tuple[str, str, str]]:
                return {
                    (labels["alertname"], labels.get("instance", ""), labels.get("home", ""))
                    for labels, _ in server.query(FIRING)
                }

            try:
                wait_until(lambda: firing() == expected, "what is wrong is told")
            except AssertionError:
                assert firing() == expected
