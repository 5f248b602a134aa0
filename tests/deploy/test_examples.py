"""The example files: what a user copies is accepted by the programs that will read it."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.agent.options import DEFAULT_PORT
from tests.deploy.newer import unpacked
from tests.real.hermes import REPOSITORY
from tests.real.prometheus import prometheus
from tests.real.waiting import wait_until

DEPLOY = REPOSITORY / "deploy"
COMPOSE = DEPLOY / "compose"
PROMETHEUS = sorted(path.name for path in (DEPLOY / "prometheus").glob("*.yml"))


def said_by(*command: str | Path, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """The examples with the rules beside them, as they tell to lay them out."""
    folder = tmp_path / "prometheus"
    shutil.copytree(DEPLOY / "prometheus", folder)
    shutil.copytree(REPOSITORY / "dashboards" / "rules", folder / "rules")
    return folder


@pytest.mark.parametrize("name", PROMETHEUS)
def test_promtool_accepts_every_example_and_finds_the_rules(configured: Path, name: str) -> None:
    status, said = said_by("promtool", "check", "config", configured / name)
    assert status == 0, said
    assert "2 rule files found" in said


@pytest.mark.full
@pytest.mark.parametrize("name", PROMETHEUS)
def test_a_newer_promtool_accepts_them_too(configured: Path, name: str) -> None:
    newer = unpacked("sid", "promtool") / "usr/bin/promtool"
    status, said = said_by(newer, "check", "config", configured / name)
    assert status == 0, said


def test_promtool_accepts_what_compose_mounts(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "dashboards" / "rules", tmp_path / "rules")
    shutil.copy(COMPOSE / "prometheus.yml", tmp_path)
    status, said = said_by("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert status == 0, said


def test_amtool_accepts_what_compose_mounts() -> None:
    status, said = said_by("amtool", "check-config", COMPOSE / "alertmanager.yml")
    assert status == 0, said


@pytest.mark.xdist_group("prometheus")
def test_relabelling_gives_hosts_readable_names(configured: Path) -> None:
    """As a real Prometheus sees the targets; it need not scrape any of them."""
    targets = configured / "targets" / "hosts.yml"
    more = [{"targets": ["desk-3.example.org:10749", "laptop:10749"]}]
    targets.write_text(targets.read_text() + yaml.safe_dump(more))
    example = yaml.safe_load((configured / "relabel.yml").read_text())
    example["scrape_configs"][0]["file_sd_configs"] = [{"files": [str(targets)]}]
    example |= {"rule_files": [], "global": {"scrape_interval": "1d"}}
    with prometheus([], configuration=json.dumps(example)) as server:

        def targets_found() -> list[dict[str, str]]:
            found = [each["labels"] for each in server.get("/api/v1/targets")["activeTargets"]]
            return found if len(found) >= 6 else []

        found = wait_until(targets_found, "all targets are known")
    seen = {labels["instance"]: labels for labels in found}
    assert seen.keys() == {"10.0.0.11", "10.0.0.12", "desk-1", "desk-3", "laptop", "10.0.0.31:9100"}
    assert seen["desk-1"]["team"] == "support"
    assert "host" not in seen["desk-1"]


def compose(*files: str) -> Any:
    """The files as the real `docker compose` understands them."""
    program = unpacked("trixie", "docker-compose") / "usr/libexec/docker/cli-plugins/docker-compose"
    chosen = [word for name in files for word in ("--file", str(COMPOSE / name))]
    status, said = said_by(program, *chosen, "config", "--format", "json", HOME="/home/ada")
    assert status == 0, said
    return json.loads(said)


def test_compose_accepts_its_file_and_every_mount_is_there() -> None:
    services = compose("compose.yaml")["services"]
    assert services.keys() == {"agent", "prometheus", "alertmanager", "grafana"}
    binds = [
        Path(mount["source"])
        for service in services.values()
        for mount in service.get("volumes", [])
        if mount["type"] == "bind"
    ]
    assert len(binds) == 5
    assert [path for path in binds if not path.exists()] == []


def test_compose_opens_ports_for_this_machine_alone() -> None:
    services = compose("compose.yaml", "own-home.yaml")["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
    assert all(service["read_only"] for service in services.values())
    own = services["own-agent"]
    assert (own["pid"], own["user"]) == ("host", "1000:1000")
    assert own["volumes"][0]["source"] == "/home/ada/.hermes"


def test_grafana_is_given_the_data_source_and_the_dashboards() -> None:
    """Its home is a dashboard that is mounted where the provider looks."""
    services = compose("compose.yaml")["services"]
    grafana = services["grafana"]
    mounted = {mount["target"]: Path(mount.get("source", "")) for mount in grafana["volumes"]}
    provisioning = mounted["/etc/grafana/provisioning"]
    (source,) = read(provisioning / "datasources/prometheus.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = read(provisioning / "dashboards/hermes.yaml")["providers"]
    dashboards = mounted[provider["options"]["path"]]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    uids = {json.loads(path.read_text())["uid"] for path in dashboards.glob("*.json")}
    assert {"hermes-fleet", "hermes-host", "hermes-agent"} <= uids
    assert (dashboards / home.name).exists()


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_the_plist_has_what_launchd_needs() -> None:
    plist = plistlib.loads((DEPLOY / "launchd" / "hermes-exporter.plist").read_bytes())
    assert plist["Label"] == "hermes-exporter"
    program, *arguments = plist["ProgramArguments"]
    assert Path(program).is_absolute()
    assert arguments == ["serve"]
    assert plist["RunAtLoad"] is True
    assert plist["KeepAlive"] == {"SuccessfulExit": False}
    assert plist["Umask"] == 0o077


@pytest.mark.parametrize(
    "path",
    [
        "Dockerfile",
        "README.md",
        "dashboards/runbooks/HermesAgentDown.md",
        "deploy/compose/compose.yaml",
        "deploy/compose/prometheus.yml",
        "deploy/prometheus/static.yml",
        "deploy/prometheus/targets/hosts.yml",
        "deploy/systemd/hermes-exporter.socket",
        "docs/install.md",
    ],
)
def test_the_examples_name_the_port_that_the_agent_listens_on(path: str) -> None:
    """Those that cannot read the constant: a new default must be written there too."""
    ports = set(re.findall(r"(?<![\d.])1\d{4}(?!\d)", (REPOSITORY / path).read_text()))
    assert ports == {str(DEFAULT_PORT)}


def test_the_readme_has_two_screens_and_its_links_lead_somewhere() -> None:
    text = (REPOSITORY / "README.md").read_text()
    assert len(text.splitlines()) <= 80
    linked = set(re.findall(r'(?:\]\(|href="|src=")(?!http)([^)"#]+)', text))
    assert "docs/images/host-page-light.png" in linked
    assert {"docs/install.md", "docs/using.md", "docs/safety.md"} <= linked
    assert [path for path in sorted(linked) if not (REPOSITORY / path).is_file()] == []
