"""`docker compose up`, run by the real programs, but for Grafana, which cannot be had here.

The images of Prometheus and Alertmanager are stand-ins too: Debian's own builds under their names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deploy.docker_engine import BASE_NAME, Engine, engine, import_base_image
from tests.deploy.newer import unpacked
from tests.real.hermes import REPOSITORY
from tests.real.prometheus import Prometheus
from tests.real.waiting import wait_until

COMPOSE = REPOSITORY / "deploy/compose/compose.yaml"
SERVICES = ("agent", "prometheus", "alertmanager")
PROGRAMS = {
    "prometheus": ("prometheus", "usr/bin/prometheus", "/prometheus"),
    "alertmanager": ("prometheus-alertmanager", "usr/bin/prometheus-alertmanager", "/alertmanager"),
}
"""Package, program in it, and where the image keeps its data."""
pytestmark = [pytest.mark.full, pytest.mark.xdist_group("docker")]


def stand_in(docker: Engine, service: str, image: str, folder: Path) -> None:
    """An image of that name with Debian's build of the program, which `nobody` runs."""
    package, program, data = PROGRAMS[service]
    folder.mkdir()
    shutil.copy(unpacked("sid", package) / program, folder / service)
    (folder / "Dockerfile").write_text(
        f"FROM {BASE_NAME}\nCOPY {service} /bin/{service}\n"
        f"RUN mkdir {data} && chown 65534 {data}\n"
        f'USER 65534\nENTRYPOINT ["/bin/{service}"]\n'
    )
    docker.docker("build", "--network", "host", "--tag", image, folder)


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Engine]:
    with engine() as running:
        import_base_image(running)
        running.build("hermes-exporter")
        images = yaml.safe_load(COMPOSE.read_text())["services"]
        for service in PROGRAMS:
            stand_in(running, service, images[service]["image"], tmp_path / service)
        yield running


def compose(docker: Engine, *words: str) -> None:
    program = unpacked("trixie", "docker-compose") / "usr/libexec/docker/cli-plugins/docker-compose"
    done = subprocess.run(
        [program, "--file", COMPOSE, *words],
        env={**os.environ, "DOCKER_HOST": f"unix://{docker.socket}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_command_shows_a_home_with_its_leaks(docker: Engine) -> None:
    compose(docker, "up", "--detach", "--no-build", *SERVICES)
    try:
        server = Prometheus("http://127.0.0.1:9090")
        wait_until(lambda: answers(server), "Prometheus answers at the port that is told")
        server.wait_for('up{job="hermes-exporter", instance="agent"} == 1')
        server.wait_for('hermes_home_up{home="default"} == 1')
        groups = server.get("/api/v1/rules")["groups"]
        assert {"recording.yaml", "alerts.yaml"} == {Path(each["file"]).name for each in groups}
        assert server.get("/api/v1/alertmanagers")["activeAlertmanagers"]
        wait_until(
            lambda: server.query("sum(hermes_sessions_leaked) > 0"), "leaks show", seconds=240
        )
        assert server.query("hermes_exporter_blind == 1") == []
    finally:
        compose(docker, "down", "--volumes")


def answers(server: Prometheus) -> bool:
    try:
        return server.query("vector(1)") != []
    except OSError:
        return False
