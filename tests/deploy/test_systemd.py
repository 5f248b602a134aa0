"""The systemd units: valid, hardened, and open where the agent must see."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from exporter.config.units import parse_size
from exporter.workers import privilege
from tests.real.hermes import REPOSITORY
from tests.real.prometheus import free_port
from tests.real.waiting import wait_until

UNITS = REPOSITORY / "deploy" / "systemd"
PROGRAM = "/usr/bin/hermes-exporter"
SYSTEM = sorted(path.name for path in UNITS.iterdir() if path.is_file() and path.suffix != ".conf")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units as if the program were installed: it must exist for them to be valid."""
    program = tmp_path / "hermes-exporter"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in UNITS.rglob("*.*"):
        copy = tmp_path / path.relative_to(UNITS)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(path.read_text().replace(PROGRAM, str(program)))
    return tmp_path


def analyze(folder: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        ["systemd-analyze", *words],
        cwd=folder,
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def settings(unit: str) -> dict[str, str]:
    """The last value of each setting of a service."""
    reader = configparser.RawConfigParser(strict=False)
    reader.optionxform = str  # type: ignore[assignment, method-assign]
    reader.read(UNITS / unit)
    return dict(reader["Service"])


def test_every_unit_is_valid(units: Path) -> None:
    names = [f"./{name}" for name in SYSTEM]
    assert analyze(units, "verify", "--man=no", *names) == (0, "")
    user = units / "user"
    assert analyze(user, "--user", "verify", "--man=no", "./hermes-exporter.service") == (0, "")


def test_a_unit_that_may_act_is_valid_too(units: Path) -> None:
    drop_ins = units / "hermes-exporter.service.d"
    drop_ins.mkdir()
    (units / "enforce.conf").rename(drop_ins / "enforce.conf")
    assert analyze(units, "verify", "--man=no", "./hermes-exporter.service") == (0, "")


@pytest.mark.parametrize("unit", ["hermes-exporter.service", "hermes-exporter-textfile.service"])
def test_the_observing_units_expose_little(units: Path, unit: str) -> None:
    status, said = analyze(units, "security", "--offline=true", "--threshold=25", f"./{unit}")
    assert status == 0, said


@pytest.mark.parametrize("unit", ["hermes-exporter.service", "hermes-exporter-textfile.service"])
def test_nothing_hides_processes_and_locks_from_the_agent(unit: str) -> None:
    chosen = settings(unit)
    assert chosen["ProtectProc"] == "default"
    assert chosen["ProcSubset"] == "all"
    assert chosen.get("PrivateUsers", "no") == "no"
    assert "CAP_SYS_PTRACE" in chosen["CapabilityBoundingSet"]


@pytest.mark.parametrize("unit", ["hermes-exporter.service", "hermes-exporter-textfile.service"])
def test_a_home_that_fills_the_memory_costs_its_worker_and_not_the_agent(unit: str) -> None:
    chosen = settings(unit)
    limit, most = (parse_size(f"{chosen[name]}iB") for name in ("LimitDATA", "MemoryMax"))
    assert limit < most
    assert limit < privilege.MEMORY_BYTES_MAX, "the unit's own would never be met"
    assert chosen["OOMPolicy"] == "continue"


def test_a_users_unit_asks_for_nothing_that_needs_a_user_namespace() -> None:
    hiding = {"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateUsers"}
    assert settings("user/hermes-exporter.service").keys() & hiding == set()


def test_the_agent_serves_on_the_socket_that_was_opened_for_it(tmp_path: Path) -> None:
    """Opened by systemd's own program; the agent itself has no network but the one given."""
    port = free_port()
    activate = ["systemd-socket-activate", f"--listen=127.0.0.1:{port}"]
    activate += [f"--setenv={name}" for name in ("PATH", "PYTHONPATH") if name in os.environ]
    serve = [sys.executable, "-m", "exporter", "serve", "--home", str(tmp_path)]
    serve += ["--state-dir", str(tmp_path / "state")]
    log = tmp_path / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [*activate, *("unshare", "--net", "--"), *serve],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            wait_until(lambda: "Listening on" in log.read_text(), "the socket is open")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                assert b"hermes_exporter_build_info" in answer.read()
        finally:
            process.terminate()
    assert f"address=127.0.0.1:{port}" in log.read_text()
