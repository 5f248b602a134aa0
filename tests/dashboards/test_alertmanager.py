"""The example for Alertmanager: who hears of what, and which alerts are silenced by others."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from tests.real.alertmanager import alertmanager
from tests.real.hermes import REPOSITORY
from tests.real.waiting import wait_until

EXAMPLE = REPOSITORY / "dashboards" / "alertmanager" / "alertmanager.yml"
HOME = {"job": "hermes-exporter", "instance": "web-1:10749", "home": "default"}


def alerts() -> dict[str, str]:
    """Every alert and its severity."""
    rules = yaml.safe_load((REPOSITORY / "dashboards" / "rules" / "alerts.yaml").read_text())
    return {
        rule["alert"]: rule["labels"]["severity"]
        for group in rules["groups"]
        for rule in group["rules"]
    }


def amtool(*words: str) -> str:
    done = subprocess.run(["amtool", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_amtool_finds_no_fault() -> None:
    assert "SUCCESS" in amtool("check-config", str(EXAMPLE))


@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_critical_alerts_page_and_others_wait(severity: str) -> None:
    receiver = "page" if severity == "critical" else "working-day"
    name = next(alert for alert, level in alerts().items() if level == severity)
    words = ("config", "routes", "test", f"--config.file={EXAMPLE}")
    assert amtool(*words, f"alertname={name}", f"severity={severity}").split() == [receiver]


def test_it_names_alerts_that_there_are() -> None:
    named = set(re.findall(r"\bHermes[A-Z]\w+", EXAMPLE.read_text()))
    assert named <= alerts().keys()


@pytest.mark.parametrize(
    ("cause", "echoes", "others"),
    [
        ("HermesAgentDown", {"HermesScanStale", "HermesGatewayDown"}, set()),
        ("HermesHomeUnreadable", {"HermesScanStale"}, {"HermesDiskNearlyFull"}),
        ("HermesFalseReap", {"HermesWrittenAfterEnd"}, {"HermesReaperBreakerOpen"}),
        (
            "HermesDiskNearlyFull",
            {"HermesDiskFullSoon", "HermesPruneThresholdUnreachable"},
            {"HermesHomeGrowsFast"},
        ),
        ("HermesGatewayRestartStorm", {"HermesGatewayDown"}, {"HermesKanbanDeadOwner"}),
    ],
)
def test_an_echo_is_silenced_at_its_home_alone(
    cause: str, echoes: set[str], others: set[str]
) -> None:
    here = {cause, *echoes, *others}
    with alertmanager(EXAMPLE.read_text()) as server:
        server.post([{"labels": {**HOME, "alertname": name}} for name in sorted(here)])
        expected = {name: name in echoes for name in here}
        wait_until(lambda: server.inhibited() == expected, f"silenced: {sorted(echoes)}")


def test_the_same_at_another_host_is_heard() -> None:
    with alertmanager(EXAMPLE.read_text()) as server:
        there = {**HOME, "instance": "web-2:10749", "alertname": "HermesScanStale"}
        server.post([{"labels": {**HOME, "alertname": "HermesAgentDown"}}, {"labels": there}])
        expected = {"HermesAgentDown": False, "HermesScanStale": False}
        wait_until(lambda: server.inhibited() == expected, "nothing is silenced")
