"""The agent under a service manager: it tells when it serves, reloads, stops and still lives.

The manager is a socket of the test that speaks systemd's documented protocol; systemd itself needs
to be the first process of a host.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.agent.systemd import OVERDUE_SECONDS, ScanDeadline, ServiceManager
from tests.real.agent import agent


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening


def heard(manager: socket.socket) -> dict[str, str]:
    lines = manager.recv(4096).decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def after_signs_of_life(manager: socket.socket) -> dict[str, str]:
    while (message := heard(manager)) == {"WATCHDOG": "1"}:
        pass
    return message


def falls_silent(manager: socket.socket) -> bool:
    """One message may be on its way, but no more come."""
    for _ in range(100):
        try:
            heard(manager)
        except TimeoutError:
            return True
    return False


def test_a_manager_is_told_of_every_step(tmp_path: Path, manager: socket.socket) -> None:
    told = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
    with agent(tmp_path, [tmp_path], environment=told, ready=False) as running:
        assert heard(manager) == {"READY": "1"}
        assert running.get("/-/healthy")[0] == 200
        for _ in range(3):
            assert heard(manager) == {"WATCHDOG": "1"}

        running.process.send_signal(signal.SIGHUP)
        reloading = after_signs_of_life(manager)
        assert reloading.pop("MONOTONIC_USEC").isdecimal()
        assert reloading == {"RELOADING": "1"}
        assert after_signs_of_life(manager) == {"READY": "1"}

        running.process.send_signal(signal.SIGTERM)
        assert after_signs_of_life(manager) == {"STOPPING": "1"}
        assert running.process.wait(timeout=60) == 0


def test_a_bad_configuration_does_not_leave_the_manager_waiting(
    tmp_path: Path, manager: socket.socket
) -> None:
    told = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    with agent(tmp_path, [tmp_path], environment=told) as running:
        assert heard(manager) == {"READY": "1"}
        (tmp_path / "hermes-exporter.yml").write_text("nonsense: 1\n")
        running.process.send_signal(signal.SIGHUP)
        assert heard(manager)["RELOADING"] == "1"
        assert heard(manager) == {"READY": "1"}


def test_a_scanner_that_missed_its_own_deadline_is_not_covered_up(
    tmp_path: Path, manager: socket.socket
) -> None:
    now = 0.0
    scan_deadline = ScanDeadline(lambda: now)
    scan_deadline.expect(15)
    service = ServiceManager(str(tmp_path / "notify"), watchdog_seconds=0.03)

    async def live() -> None:
        nonlocal now
        alive = asyncio.create_task(service.send_watchdog(scan_deadline))
        assert await asyncio.to_thread(heard, manager) == {"WATCHDOG": "1"}
        now = 15 + OVERDUE_SECONDS
        manager.settimeout(0.3)
        assert await asyncio.to_thread(falls_silent, manager)
        alive.cancel()

    asyncio.run(live())


def test_the_variables_are_for_this_process_alone() -> None:
    environment = {"NOTIFY_SOCKET": "@hermes", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
    service = ServiceManager.from_environment(environment)
    assert service.watchdog_seconds is None, "another process is watched"
    assert environment == {}


def test_a_deaf_manager_hinders_nothing(tmp_path: Path) -> None:
    gone = {"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "300000"}
    with agent(tmp_path, [tmp_path], environment=gone) as running:
        assert running.get("/metrics")[0] == 200
        assert running.stop() == 0
