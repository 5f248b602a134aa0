"""The Debian package and the README's lines, on a Debian that has booted its own systemd."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter import __version__
from tests.deploy.machine import Machine, booted, installed
from tests.real.agent import Metrics
from tests.real.hermes import NEWEST, REPOSITORY
from tests.real.homes import make_home
from tests.real.prometheus import prometheus
from tests.real.waiting import wait_until

README = (REPOSITORY / "README.md").read_text()
DASHBOARDS = REPOSITORY / "dashboards"
SCRIPTS = ("postinst", "prerm", "postrm")
STATE = Path("var/lib/hermes-exporter")
ADA = 1500
INSTALL = "apt-get -qq install ./dist/*_$(dpkg --print-architecture).deb"
pytestmark = pytest.mark.xdist_group("docker")


def blocks(section: str, language: str) -> list[str]:
    """The code blocks of a section of the README, as they stand there."""
    (text,) = re.findall(rf"^## {section}\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_maintainer_scripts_are_sound(name: str) -> None:
    script = REPOSITORY / "deploy" / "debian" / name
    assert script.read_text().startswith("#!/bin/sh\nset -e\n")
    subprocess.run(["sh", "-n", script], check=True)


@pytest.fixture(scope="module")
def dist() -> Path:
    subprocess.run(["make", "dist"], cwd=REPOSITORY, check=True, capture_output=True)
    return REPOSITORY / "dist"


@pytest.fixture
def machine(dist: Path) -> Iterator[Machine]:
    """A Debian with the files of a release at hand, and a user whose Hermes has been used.

    It shares the host's network, to fetch packages, and so the port that the README names.
    """
    with socket.socket() as probe:
        taken = probe.connect_ex(("127.0.0.1", 10749)) == 0
    assert not taken, "port 10749 is in use on this host; stop the agent that has it"
    with installed() as root:
        shutil.copytree(dist, root / "root/dist")
        with booted(root) as running:
            running.shell("apt-get -qq update && apt-get -qq install --no-install-recommends git")
            running.run("useradd", "--create-home", "--uid", str(ADA), "ada")
            make_home(NEWEST, root / "home/ada", ".hermes")
            running.shell("chown --recursive ada:ada /home/ada && chmod 700 /home/ada")
            yield running


def scrape() -> Metrics:
    """What the agent tells at its usual port."""
    with urllib.request.urlopen("http://127.0.0.1:10749/metrics", timeout=30) as response:
        text = response.read().decode()
    return Metrics(
        ((sample.name, frozenset(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    )


def is_up(home: str) -> bool:
    try:
        return scrape().by("hermes_home_up", "home").get((home,)) == 1
    except OSError:
        return False


def files(machine: Machine) -> set[str]:
    """What is on it, but for what the package manager and the system note for themselves."""
    found = machine.shell("find / -xdev ! -path '/home/*' ! -path '/root/*' ! -path '/tmp/*'")
    notes = re.compile(r"/(var/(log|cache|lib/(dpkg|apt|systemd))|run|proc|sys|dev)(/|$)")
    return {line for line in found.splitlines() if not notes.match(line)}


def debian_architecture() -> str:
    return subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()


def repacked(package: Path, folder: Path, version: str) -> Path:
    """The same package as another version."""
    subprocess.run(["dpkg-deb", "-R", package, folder / "tree"], check=True)
    control = folder / "tree/DEBIAN/control"
    text = control.read_text().replace(f"Version: {__version__}\n", f"Version: {version}\n")
    control.write_text(text)
    made = folder / f"{version}.deb"
    subprocess.run(["dpkg-deb", "-Znone", "-b", folder / "tree", made], check=True)
    return made


@pytest.mark.full
def test_the_readme_lines_end_with_a_target_that_is_up(machine: Machine) -> None:
    """Copied literally: the package for Debian first, then the wheel for all others."""
    debian, anywhere = blocks("Install", "sh")
    (scrape_it,) = blocks("See it in a minute", "yaml")
    every_second = "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
    with prometheus([], configuration=every_second + scrape_it) as server:
        machine.shell(debian, folder="/root")
        server.wait_for('up{job="hermes-exporter"} == 1')
        server.wait_for('hermes_home_up{home="ada"} == 1')

        machine.run("apt-get", "-qq", "purge", "hermes-exporter")
        server.wait_for('up{job="hermes-exporter"} == 0')
        *before, check, serve = anywhere.strip().splitlines()
        machine.shell("\n".join(before), folder="/root")
        # This machine has a PID namespace of its own: `check` tells so, and exits with 1.
        machine.shell(f"{check.partition('#')[0]} || [ $? = 1 ]", folder="/root")
        machine.run("systemd-run", "--quiet", "--unit=by-hand", *serve.split())
        server.wait_for('up{job="hermes-exporter"} == 1')
        server.wait_for('hermes_home_up{home="ada"} == 1')


@pytest.mark.full
def test_a_unit_installed_by_hand_behaves_as_the_packaged_one(machine: Machine) -> None:
    """By the lines of docs/install.md; as installed it observes, and root's commands act."""
    install = (REPOSITORY / "docs" / "install.md").read_text()
    (lines,) = re.findall(r"^### Any other Linux, macOS\n(.*?)^### ", install, re.M | re.S)
    by_hand = re.findall(r"^```sh\n(.*?)^```", lines, re.M | re.S)
    machine.shell(INSTALL, folder="/root")
    wait_until(lambda: is_up("ada"), "the packaged agent scans")
    packaged = behaviour(machine)
    machine.run("apt-get", "-qq", "purge", "hermes-exporter")
    machine.shell("\n".join(by_hand), folder="/root")
    wait_until(lambda: is_up("ada"), "the agent that was installed by hand scans")
    assert behaviour(machine) == packaged


def behaviour(machine: Machine) -> tuple[str, list[tuple[str, str]], list[str]]:
    """The settings of the service, what the agent answers a user, and how root's run goes."""
    names = "Type,Restart,WatchdogUSec,MemoryMax,LimitDATA,ProtectHome,StateDirectory,ActiveState"
    shown = machine.run("systemctl", "show", f"--property={names}", "hermes-exporter")
    answer = machine.run("runuser", "-u", "ada", "--", "hermes-exporter", "sessions", "--json")
    verdicts = [(each["id"], each["verdict"]) for each in json.loads(answer)]
    assert verdicts
    # The machine has a PID namespace of its own, so that there no session is proven dead.
    reaped = machine.run("hermes-exporter", "reap", "--yes", check=False)
    assert "the agent cannot write there" in reaped, reaped
    told = [line for line in reaped.splitlines() if "/etc/hermes-exporter/config.yml" not in line]
    return shown, verdicts, told


@pytest.mark.full
def test_the_package_installs_upgrades_removes_and_purges(
    machine: Machine, dist: Path, tmp_path: Path
) -> None:
    (package,) = dist.glob(f"*_{debian_architecture()}.deb")
    before = files(machine)
    machine.shell(INSTALL, folder="/root")
    wait_until(lambda: is_up("ada"), "ada's home is read by the service")

    # As its unit says: notified, on the given socket, hardened, without another blindness than
    # that a machine in a namespace has.
    shown = machine.run("systemctl", "show", "hermes-exporter", "-pActiveState,Type,NRestarts")
    assert set(shown.split()) == {"ActiveState=active", "Type=notify", "NRestarts=0"}
    assert scrape().by("hermes_exporter_blind", "reason") == {("pid_namespace",): 1}
    assert (machine.root / STATE).stat().st_mode & 0o777 == 0o700
    assert "hermes-exporter" in machine.run("hermes-exporter", "--version")
    assert machine.run("systemctl", "is-enabled", "hermes-exporter.socket").strip() == "enabled"
    machine.run("systemctl", "reload", "hermes-exporter")

    # For node_exporter, beside the service: a file that anybody can read.
    folder = machine.root / "var/lib/prometheus/node-exporter"
    folder.mkdir(parents=True)
    machine.run("systemctl", "start", "hermes-exporter-textfile.service")
    assert 'hermes_home_up{home="ada"} 1' in (folder / "hermes.prom").read_text()
    assert (folder / "hermes.prom").stat().st_mode & 0o777 == 0o644
    shutil.rmtree(machine.root / "var/lib/prometheus")

    # An upgrade keeps what was changed by hand, and counts on.
    settings = machine.root / "etc/hermes-exporter/config.yml"
    settings.write_text("scan: {interval: 1s}\n")
    counted = scrape().by("hermes_messages_total", "source")
    assert sum(counted.values()) > 0
    shutil.copy(repacked(package, tmp_path, "99.0"), machine.root / "root/newer.deb")
    machine.run("apt-get", "-qq", "install", "/root/newer.deb")
    assert settings.read_text() == "scan: {interval: 1s}\n"
    assert "99.0" in machine.run("dpkg-query", "--show", "hermes-exporter")
    wait_until(lambda: is_up("ada"), "ada's home is read by the newer service")
    assert scrape().by("hermes_messages_total", "source") == counted

    # Removed: the program is gone, what it knew is kept.
    machine.run("apt-get", "-qq", "remove", "hermes-exporter")
    assert not (machine.root / "usr/lib/hermes-exporter").exists()
    assert (machine.root / STATE / "agent.db").exists()
    assert settings.exists()
    assert machine.run("systemctl", "is-active", "hermes-exporter", check=False).strip() != "active"

    machine.run("apt-get", "-qq", "purge", "hermes-exporter")
    assert files(machine) - before == set()


@pytest.mark.full
def test_a_service_that_hangs_is_started_again(machine: Machine) -> None:
    machine.shell(INSTALL, folder="/root")
    drop_in = machine.root / "etc/systemd/system/hermes-exporter.service.d"
    drop_in.mkdir()
    (drop_in / "impatient.conf").write_text("[Service]\nWatchdogSec=2s\nRestartSec=100ms\n")
    machine.shell("systemctl daemon-reload && systemctl restart hermes-exporter")
    wait_until(lambda: is_up("ada"), "ada's home is read")
    machine.run("systemctl", "kill", "--signal=STOP", "--kill-whom=main", "hermes-exporter")

    def restarts() -> bool:
        shown = machine.run("systemctl", "show", "hermes-exporter", "-pNRestarts", "--value")
        return int(shown) >= 1

    wait_until(restarts, "systemd has started it again")
    wait_until(lambda: is_up("ada"), "ada's home is read again")


@pytest.mark.full
@pytest.mark.parametrize(("architecture", "elf"), [("amd64", 62), ("arm64", 183)])
def test_either_architecture_has_its_own_libraries_for_every_python(
    dist: Path, tmp_path: Path, architecture: str, elf: int
) -> None:
    """The one that this host is not can be packed here too; it is not run here."""
    if not list(dist.glob(f"*_{architecture}.deb")):
        subprocess.run([REPOSITORY / "scripts/build-deb.sh", architecture], check=True)
    (package,) = dist.glob(f"*_{architecture}.deb")
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    machines = {
        path: int.from_bytes(path.read_bytes()[18:20], "little")
        for path in tmp_path.rglob("*.so*")
        if path.read_bytes()[:4] == b"\x7fELF"
    }
    assert set(machines.values()) == {elf}
    for minor in ("3.11", "3.12", "3.13", "3.14"):
        packages = tmp_path / f"usr/lib/hermes-exporter/lib/python{minor}/site-packages"
        assert (packages / "apsw").is_dir()
        assert (packages / "msgspec").is_dir()
    assert (tmp_path / "usr/lib/hermes-exporter/shared/exporter/cli/main.py").exists()


@pytest.mark.full
def test_the_package_brings_what_the_servers_of_a_fleet_need(dist: Path, tmp_path: Path) -> None:
    """Rules, dashboards and every runbook."""
    (package,) = dist.glob(f"*_{debian_architecture()}.deb")
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True)
    shared = tmp_path / "usr/share/hermes-exporter"
    for folder, ours in (
        ("rules", "rules/*.yaml"),
        ("dashboards", "grafana/*.json"),
        ("runbooks", "runbooks/*.md"),
    ):
        expected = {path.name for path in DASHBOARDS.glob(ours)}
        assert expected
        assert {path.name for path in (shared / folder).iterdir()} == expected


@pytest.mark.full
def test_an_older_agent_refuses_a_newer_state_directory_clearly(machine: Machine) -> None:
    machine.shell(INSTALL, folder="/root")
    wait_until(lambda: is_up("ada"), "ada's home is read")
    machine.run("systemctl", "stop", "hermes-exporter.service", "hermes-exporter.socket")
    with apsw.Connection(str(machine.root / STATE / "agent.db")) as newer:
        newer.pragma("user_version", 1000)
    said = machine.run("hermes-exporter", "serve", check=False)
    assert "was written by a newer hermes-exporter (state version 1000" in said
    assert said.count("\n") == 1
