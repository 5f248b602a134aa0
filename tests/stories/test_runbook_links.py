"""The link in a notification of 3 a.m. opens the runbook, from another host, over HTTP and TLS."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.cables import ADDRESSES, network, switch
from tests.real.agent import agent
from tests.real.command import run
from tests.real.hermes import REPOSITORY
from tests.real.prometheus import free_port, prometheus
from tests.real.waiting import wait_until
from tests.support.certificates import Authority
from tests.support.small_homes import small_home

HERE = f"{ADDRESSES}1"
CONFIGURATION = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: hermes-exporter
    static_configs: [{{targets: ['{plain}', '{dead}']}}]
  - job_name: tls/hermes-exporter
    scheme: https
    tls_config: {{ca_file: {folder}/authority.crt}}
    static_configs: [{{targets: ['{tls}']}}]
"""


def rules_that_fire_at_once(folder: Path) -> Path:
    """Two alerts with the links that they really have, and simpler reasons."""
    written = yaml.safe_load((REPOSITORY / "dashboards" / "rules" / "alerts.yaml").read_text())
    rules = {rule["alert"]: rule for group in written["groups"] for rule in group["rules"]}
    simple = {"HermesScanStale": "up == 1", "HermesAgentDown": "up == 0"}
    fast = [{**rules[name], "expr": reason, "for": "0s"} for name, reason in simple.items()]
    file = folder / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "fast", "rules": fast}]}))
    return file


def links(alerts: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {
        (each["labels"]["alertname"], each["labels"]["instance"]): each["annotations"][
            "runbook_url"
        ]
        for each in alerts["alerts"]
        if each["state"] == "firing"
    }


@pytest.mark.full
def test_the_link_of_an_alert_opens_its_runbook_on_another_host(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", f"IP:{HERE}")
    web = tmp_path / "web.yml"
    web.write_text("tls_server_config: {cert_file: server.crt, key_file: server.key}\n")
    home = small_home(tmp_path / "home")
    plain, tls, dead = (f"{HERE}:{free_port()}" for _ in range(3))
    for name in ("plain", "tls"):
        (tmp_path / name).mkdir()
    with (
        switch() as cables,
        network("oncall") as oncall,
        agent(tmp_path / "plain", [home], f"--web.listen-address={plain}"),
        agent(
            tmp_path / "tls",
            [home],
            *(f"--web.listen-address={tls}", f"--web.config.file={web}"),
            ready=False,
        ),
    ):
        cables.plug(oncall)

        def opened(link: str) -> str:
            curl = [
                "curl",
                "-sSLf",
                "--max-time",
                "60",
                "--cacert",
                str(tmp_path / "authority.crt"),
            ]
            return subprocess.run(
                ["ip", "netns", "exec", oncall, *curl, link],
                capture_output=True,
                text=True,
                check=True,
            ).stdout

        configuration = CONFIGURATION.format(
            rules=rules_that_fire_at_once(tmp_path),
            plain=plain,
            tls=tls,
            dead=dead,
            folder=tmp_path,
        )
        with prometheus([], configuration=configuration) as server:
            found = wait_until(
                lambda: [all_] if len(all_ := links(server.get("/api/v1/alerts"))) == 3 else [],
                "three alerts fire",
            )[0]
        assert found == {
            ("HermesScanStale", plain): f"http://{plain}/runbooks/HermesScanStale",
            ("HermesScanStale", tls): f"http://{tls}/runbooks/HermesScanStale",
            ("HermesAgentDown", dead): found["HermesAgentDown", dead],
        }
        assert dead not in found["HermesAgentDown", dead]
        for (name, _), link in found.items():
            assert f"<h1>{name}</h1>" in opened(link)


def test_check_asks_for_a_base_where_no_other_host_can_open_a_runbook(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    options = ("--home", str(home), "--state-dir", str(tmp_path / "state"))
    base = tmp_path / "with-base.yml"
    base.write_text("alerts: {runbook_base: 'https://wiki.example.org/runbooks'}\n")
    asks = "set alerts.runbook_base"
    assert asks in " ".join(run("check", *options).stdout.split())
    assert asks not in run("check", *options, "--web.listen-address=:9999").stdout
    assert asks not in run("check", *options, f"--config.file={base}").stdout
    assert json.loads(run("check", *options, "--json").stdout).keys() == {"ok", "config", "homes"}
