"""The state of a gateway by record, process and lock, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.evidence.liveness import read_clock
from exporter.evidence.models import GatewayEvidence, GatewayState
from exporter.evidence.survey import survey
from exporter.hermes.process_kinds import ProcessKind
from exporter.snapshot import GatewayFiles
from tests.real.waiting import wait_until
from tests.support.evidence import (
    IN_NEW_PID_NAMESPACE,
    Puppet,
    files,
    hermes,
    identity,
    puppet,
    survey_elsewhere,
)

UP, DOWN, UNKNOWN = GatewayState.UP, GatewayState.DOWN, GatewayState.UNKNOWN


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "gateway.lock").touch()
    return folder


def take_lock(process: Puppet, home: Path) -> None:
    process.do(f"lock = open({str(home / 'gateway.lock')!r}, 'r+')")
    process.do("fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)")


def record(home: Path, pid: int | None, start_ticks: int | None) -> GatewayFiles:
    lock = identity(home / "gateway.lock")
    return GatewayFiles(pid=pid, start_ticks=start_ticks, lock=lock)


def record_of(home: Path, process: Puppet) -> GatewayFiles:
    return record(home, process.pid, process.stat().start_ticks)


def judge(home: Path, gateway: GatewayFiles) -> GatewayEvidence:
    found = survey([files(home, gateway)]).homes[str(home)].gateway
    assert found is not None
    return found


def test_a_gateway_that_runs_and_holds_its_lock_is_up_since_its_start(home: Path) -> None:
    with hermes(home, "gateway", "run") as process:
        take_lock(process, home)
        found = judge(home, record_of(home, process))
        holders_view = survey([files(home)])
        started_at = read_clock().epoch(process.stat().start_ticks)
    assert found.state is UP
    assert found.started_at == pytest.approx(started_at, abs=2)
    assert holders_view.homes[str(home)].gateway is None


def test_a_gateway_whose_process_is_gone_is_down_whatever_its_record_says(home: Path) -> None:
    with hermes(home, "gateway", "run") as process:
        take_lock(process, home)
        gateway = record_of(home, process)
    assert judge(home, gateway).state is DOWN


def test_a_reused_pid_is_not_the_gateway(home: Path) -> None:
    with puppet() as stranger:
        gateway = record(home, stranger.pid, stranger.stat().start_ticks + 1)
        assert judge(home, gateway).state is DOWN


def test_a_zombie_is_down(home: Path) -> None:
    with hermes(home, "gateway", "run") as process:
        take_lock(process, home)
        gateway = record_of(home, process)
        process.process.kill()
        wait_until(lambda: process.stat().state == "Z", "a zombie")
        assert judge(home, gateway).state is DOWN


def test_a_process_without_its_lock_is_unknown(home: Path) -> None:
    """PID and start ticks can repeat after a reboot. Without the lock they prove nothing."""
    with hermes(home, "gateway", "run") as process:
        assert judge(home, record_of(home, process)).state is UNKNOWN


def test_a_new_gateway_is_up_before_its_record_is_written(home: Path) -> None:
    with hermes(home, "gateway", "run", "--replace") as process:
        take_lock(process, home)
        found = judge(home, record(home, None, None))
        started_at = read_clock().epoch(process.stat().start_ticks)
    assert found.state is UP
    assert found.started_at == pytest.approx(started_at, abs=2)


def test_a_lock_held_by_another_program_is_unknown(home: Path) -> None:
    with hermes(home, "status") as process:
        take_lock(process, home)
        assert judge(home, record(home, None, None)).state is UNKNOWN


def test_a_dead_gateway_is_down_even_if_a_child_keeps_its_lock(home: Path) -> None:
    with hermes(home, "gateway", "run") as process:
        take_lock(process, home)
        gateway = record_of(home, process)
        process.do("os.fork() or (os.read(0, 1), os._exit(0))")  # until its input ends
        process.end()
        found = judge(home, gateway)
    assert found.state is DOWN


def test_a_program_that_embeds_a_gateway_is_still_of_unknown_kind(home: Path) -> None:
    """It has the gateway's record and lock, and may also run any session."""
    with puppet(script=home.parent / "gateway" / "run.py") as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        take_lock(process, home)
        found = survey([files(home, record_of(home, process))]).homes[str(home)]
    assert found.gateway is not None
    assert found.gateway.state is UP
    assert [holder.kind for holder in found.holders] == [ProcessKind.OTHER]


def test_a_gateway_in_a_container_is_found_by_its_pid_in_there(home: Path) -> None:
    script = home.parent / "bin" / "hermes"
    with puppet("gateway", "run", script=script, wrapper=IN_NEW_PID_NAMESPACE) as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        take_lock(process, home)
        inside = int(process.do("os.getpid()"))
        ticks = int(process.do("int(open('/proc/self/stat').read().rsplit(')')[1].split()[19])"))
        found = judge(home, record(home, inside, ticks))
        assert found.state is UP
        assert inside != process.pid
        assert found.started_at == pytest.approx(read_clock().epoch(ticks), abs=2)


def test_inside_a_pid_namespace_an_unseen_gateway_is_unknown(home: Path) -> None:
    with hermes(home, "gateway", "run") as process:
        take_lock(process, home)
        target = files(home, record_of(home, process))
        survey_there = survey_elsewhere([target], wrapper=IN_NEW_PID_NAMESPACE)
    found = survey_there.homes[str(home)].gateway
    assert found is not None
    assert found.state is UNKNOWN
