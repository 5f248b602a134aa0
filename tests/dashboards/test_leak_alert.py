"""A leak of killed Hermes processes pages the engineer on call, and the alert is resolved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.dashboards.hasty import configuration
from tests.real.alertmanager import Receiver, alertmanager, receiver
from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.real.prometheus import prometheus
from tests.real.stub_model import stub_model
from tests.support.verdicts import HOME, leak, watching

DASHBOARDS = REPOSITORY / "dashboards"
ALERT = "HermesLeakRatioHigh"


def routed_to(hook: Receiver) -> str:
    """The example for Alertmanager, in a hurry, with a receiver that is there."""
    example = yaml.safe_load((DASHBOARDS / "alertmanager" / "alertmanager.yml").read_text())
    for route in (example["route"], *example["route"]["routes"]):
        route |= {"group_wait": "1s", "group_interval": "1s"}
    for each in example["receivers"]:
        each["webhook_configs"] = [{"url": f"{hook.url}/{each['name']}"}]
    return json.dumps(example)


def reap(folder: Path) -> None:
    """By hand, as the runbook says; with the settings of the agent that watches."""
    command = [sys.executable, "-m", "exporter", "reap", "--yes"]
    command += ["--config.file", str(folder / "hermes-exporter.yml")]
    done = subprocess.run(
        [*command, "--state-dir", str(folder / "by-hand")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.xdist_group("prometheus")
def test_a_leak_reaches_on_call_and_is_resolved_by_the_reap(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "agent"
    with stub_model() as model, receiver() as hook, alertmanager(routed_to(hook)) as server:
        model.configure(home)
        leak(python_for(NEWEST), home, model, "idle", "answering")
        with (
            watching(folder, home) as watch,
            prometheus(
                [], configuration=configuration(tmp_path, [watch.agent.address], [server.address])
            ) as metrics,
        ):
            place, alert = hook.wait_for(ALERT, "firing")
            assert place == "/working-day"
            assert alert["labels"] == {
                "alertname": ALERT,
                "severity": "warning",
                "job": "hermes-exporter",
                "instance": watch.agent.address,
                "home": HOME,
            }
            assert alert["annotations"]["description"].startswith(
                f"100% of the open sessions of home {HOME} on {watch.agent.address} are dead"
            )
            assert alert["annotations"]["runbook_url"] == (
                f"http://{watch.agent.address}/runbooks/{ALERT}"
            )
            assert "resolved" not in {each["status"] for _, each in hook.notifications}
            reap(folder)
            hook.wait_for(ALERT, "resolved")
            watch.wait_until_reaped(2)
            firing = f'ALERTS{{alertname="{ALERT}", alertstate="firing"}}'
            metrics.wait_for(firing, lambda found: found == [])
