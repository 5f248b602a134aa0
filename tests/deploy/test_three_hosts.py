"""A small fleet: a container, a wheel and a Debian package, each on a host with its own network.

One Prometheus finds them through a file, pages through an Alertmanager, and writes to
VictoriaMetrics; one host is cut off and comes back.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.cables import Cable, Switch, network, switch
from tests.deploy.docker_engine import engine, import_base_image
from tests.deploy.machine import booted, installed
from tests.deploy.test_package import debian_architecture
from tests.deploy.test_package import dist as dist
from tests.deploy.victoria_metrics import victoria_metrics
from tests.real.alertmanager import Alertmanager, Receiver, alertmanager, receiver
from tests.real.hermes import NEWEST, REPOSITORY
from tests.real.homes import make_home
from tests.real.prometheus import Prometheus, prometheus

JOB = "hermes-exporter"
ALERT = "HermesAgentDown"
DASHBOARDS = REPOSITORY / "dashboards"
SETTINGS = "scan: {interval: 1s}\n"
pytestmark = [pytest.mark.full, pytest.mark.xdist_group("docker")]


@contextmanager
def container(cables: Switch, folder: Path) -> Iterator[Cable]:
    """A host whose agent is a container; its only network is our cable."""
    home = make_home(NEWEST, folder, "contained").path
    settings = folder / "settings.yml"
    settings.write_text(SETTINGS)
    with engine() as docker:
        import_base_image(docker)
        docker.build(JOB)
        confined = ["--network", "none", "--read-only", "--cap-drop", "ALL", "--user", "0"]
        mounts = [f"--volume={home}:/hermes:ro", f"--volume={settings}:/settings.yml:ro"]
        serve = ["serve", "--web.listen-address=:10749", "--config.file=/settings.yml"]
        name = docker.docker("run", "--detach", *confined, *mounts, JOB, *serve).strip()
        try:
            yield cables.plug(str(docker.inspect(name)["State"]["Pid"]))
        finally:
            docker.docker("rm", "--force", "--volumes", name)


@contextmanager
def wheel(cables: Switch, folder: Path, dist: Path) -> Iterator[Cable]:
    """A host whose agent is a wheel in a virtual environment."""
    home = make_home(NEWEST, folder, "by-wheel").path
    settings = folder / "wheel.yml"
    settings.write_text(SETTINGS)
    environment = folder / "venv"
    (built,) = dist.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run([environment / "bin/pip", "--quiet", "install", built], check=True)
    with network("wheel") as name:
        cable = cables.plug(name)
        with subprocess.Popen(
            [
                *("ip", "netns", "exec", name, environment / "bin/hermes-exporter", "serve"),
                *("--home", home, "--state-dir", folder / "wheel-state"),
                *("--config.file", settings, "--web.listen-address", ":10749"),
            ],
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield cable
            finally:
                process.terminate()


@contextmanager
def package(cables: Switch, dist: Path) -> Iterator[Cable]:
    """A host that boots with the Debian package already installed."""
    with installed() as root, network("package") as name:
        (built,) = dist.glob(f"*_{debian_architecture()}.deb")
        shutil.copy(built, root / "root/package.deb")
        install_on(root, "/root/package.deb")
        (root / "etc/hermes-exporter/config.yml").write_text(SETTINGS)
        everywhere = root / "etc/systemd/system/hermes-exporter.socket.d/everywhere.conf"
        everywhere.parent.mkdir(parents=True)
        everywhere.write_text("[Socket]\nListenStream=\nListenStream=10749\n")
        make_home(NEWEST, root / "root", ".hermes")
        subprocess.run(["chown", "--recursive", "0:0", root / "root"], check=True)
        cable = cables.plug(name)
        with booted(root, name):
            yield cable


def install_on(root: Path, package: str) -> None:
    """Install a package on a machine that is not running."""
    within = f"""
        mount -t proc proc {root}/proc
        exec chroot {root} env -i PATH=/usr/sbin:/usr/bin DEBIAN_FRONTEND=noninteractive \\
            sh -ec "apt-get -qq update && apt-get -qq --yes install {package}"
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", within], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def hasty(file: Path, folder: Path) -> Path:
    """A copy of a rule file in which minutes and hours are seconds."""
    text = re.sub(r"\[\d+[mhd]\]", "[5s]", file.read_text())
    text = re.sub(r"^( +)(for|interval): \w+$", r"\1\2: 1s", text, flags=re.MULTILINE)
    copy = folder / file.name
    copy.write_text(text)
    return copy


def configuration(
    folder: Path, targets: Path, alerts: Alertmanager, store: Prometheus
) -> dict[str, Any]:
    """The examples for a fleet and for a large store, in a hurry and with places that are there."""
    example = yaml.safe_load((REPOSITORY / "deploy/prometheus/file-sd.yml").read_text())
    write = yaml.safe_load((REPOSITORY / "deploy/prometheus/remote-write.yml").read_text())
    (scrape,) = example["scrape_configs"]
    scrape["file_sd_configs"][0]["files"] = [str(targets)]
    to_victoria = write["remote_write"][0] | {"url": f"{store.url}/api/v1/write"}
    rules = [hasty(path, folder) for path in sorted((DASHBOARDS / "rules").glob("*.yaml"))]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alerts.address]}]}]},
        "scrape_configs": [scrape],
        "remote_write": [to_victoria],
    }


def routed_to(hook: Receiver) -> str:
    example = yaml.safe_load((DASHBOARDS / "alertmanager/alertmanager.yml").read_text())
    for route in (example["route"], *example["route"]["routes"]):
        route |= {"group_wait": "1s", "group_interval": "1s"}
    for each in example["receivers"]:
        each["webhook_configs"] = [{"url": f"{hook.url}/{each['name']}"}]
    return json.dumps(example)


def fleet_queries() -> list[str]:
    """Every expression of the Fleet dashboard, for all jobs, instances and homes."""
    dashboard = json.loads((DASHBOARDS / "grafana/hermes-fleet.json").read_text())
    found: set[str] = set()
    waiting = list(dashboard["panels"])
    while waiting:
        panel = waiting.pop()
        waiting += panel.get("panels", [])
        found |= {target["expr"] for target in panel.get("targets", [])}
    assert len(found) > 20
    return sorted(re.sub(r"\$(job|instance|home)\b", ".+", expression) for expression in found)


def answer(server: Prometheus, expression: str, at: float) -> dict[tuple[Any, ...], float]:
    result = server.get("/api/v1/query", query=expression, time=str(at))["result"]
    return {tuple(sorted(each["metric"].items())): float(each["value"][1]) for each in result}


def same(one: dict[tuple[Any, ...], float], other: dict[tuple[Any, ...], float]) -> bool:
    return one.keys() == other.keys() and all(
        math.isclose(value, other[key], rel_tol=1e-9, abs_tol=1e-12) for key, value in one.items()
    )


def write_targets(file: Path, *cables: Cable) -> None:
    """As an inventory would: whole, at once."""
    addresses = [f"{cable.address}:10749" for cable in cables]
    text = yaml.safe_dump([{"targets": addresses, "labels": {"team": "research"}}])
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


def test_a_host_is_cut_off_and_comes_back(dist: Path, tmp_path: Path) -> None:
    targets = tmp_path / "targets.yml"
    with ExitStack() as stack:
        cables = stack.enter_context(switch())
        contained = stack.enter_context(container(cables, tmp_path))
        by_wheel = stack.enter_context(wheel(cables, tmp_path, dist))
        packaged = stack.enter_context(package(cables, dist))
        hook = stack.enter_context(receiver())
        alerts = stack.enter_context(alertmanager(routed_to(hook)))
        store = stack.enter_context(victoria_metrics(tmp_path))
        write_targets(targets, contained, by_wheel)
        settings = json.dumps(configuration(tmp_path, targets, alerts, store))
        server = stack.enter_context(prometheus([], configuration=settings))

        server.wait_for(f'up{{job="{JOB}"}} == 1', lambda up: len(up) == 2)
        write_targets(targets, contained, by_wheel, packaged)
        server.wait_for(f'up{{job="{JOB}"}} == 1', lambda up: len(up) == 3)
        server.wait_for("hermes_home_up == 1", lambda homes: len(homes) == 3)
        assert {labels["team"] for labels, _ in server.query("hermes_home_up")} == {"research"}
        server.wait_for("sum(job:hermes_agent_up:count_down) == 0")

        by_wheel.cut()
        _, alert = hook.wait_for(ALERT, "firing")
        assert alert["labels"]["instance"] == f"{by_wheel.address}:10749"
        server.wait_for("sum(job:hermes_agent_up:count_down) == 1")
        at = settled(server, store)
        differing = [
            (expression, answer(server, expression, at), answer(store, expression, at))
            for expression in fleet_queries()
            if not same(answer(server, expression, at), answer(store, expression, at))
        ]
        assert differing == []
        answered = [each for each in fleet_queries() if answer(server, each, at)]
        assert len(answered) > 10

        by_wheel.mend()
        hook.wait_for(ALERT, "resolved")
        server.wait_for("sum(job:hermes_agent_up:count_down) == 0")
        down = {
            each["labels"]["instance"]
            for _, each in hook.notifications
            if each["labels"]["alertname"] == ALERT
        }
        assert down == {f"{by_wheel.address}:10749"}, "no page for the other two"


def settled(server: Prometheus, store: Prometheus) -> float:
    """A moment of which both have everything: they have newer samples already."""
    at = time.time()
    newest = f"min(timestamp(instance:hermes_agent_up:min)) > {at + 2}"
    server.wait_for(newest)
    store.wait_for(newest)
    return at
