"""The survey without /proc: it reports what it sees, and marks the rest as blind."""

from __future__ import annotations

from pathlib import Path

from exporter.evidence.models import Blindness, GatewayState
from exporter.evidence.psutil_survey import judge_gateway, started_at
from exporter.evidence.survey import survey
from exporter.hermes.process_kinds import ProcessKind
from exporter.snapshot import GatewayFiles
from tests.support.evidence import files, hermes, identity, puppet


def test_a_holder_is_seen_and_nothing_is_claimed_about_its_locks(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with hermes(home, "-r", "20260102_030405_abcdef") as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        found = survey([files(home)], platform="darwin")
        (holder,) = found.homes[str(home)].holders
        assert [c.directory for c in found.candidates if c.database == identity(home / "state.db")]
    assert (holder.pid, holder.kind) == (process.pid, ProcessKind.CLI)
    assert [session.id for session in holder.sessions] == ["20260102_030405_abcdef"]
    assert found.homes[str(home)].lockless_pids is None


def test_an_empty_answer_is_always_blind(tmp_path: Path) -> None:
    found = survey([files(tmp_path)], platform="darwin").homes[str(tmp_path)]
    assert found.holders == ()
    assert Blindness.PLATFORM in found.blind
    assert (found.lockless_pids, found.deleted_wal_pids) == (None, None)


def record(pid: int | None, hundredths: int | None) -> GatewayFiles:
    return GatewayFiles(pid=pid, start_ticks=hundredths, lock=None)


def test_a_recorded_gateway_is_up_while_that_process_lives_and_down_after() -> None:
    with puppet() as process:
        began = started_at(process.pid)
        assert began is not None
        gateway = record(process.pid, int(began * 100))
        assert judge_gateway(gateway).state is GatewayState.UP
        assert judge_gateway(record(process.pid, int(began * 100) - 500)).state is GatewayState.DOWN
    assert judge_gateway(gateway).state is GatewayState.DOWN


def test_a_gateway_without_a_start_time_is_unknown() -> None:
    assert judge_gateway(record(1, None)).state is GatewayState.UNKNOWN
