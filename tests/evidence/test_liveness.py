"""The process of a lease is alive, dead, or unknown."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from exporter.evidence.liveness import LivingOwners, lease_alive
from exporter.evidence.models import Blindness, HomeEvidence, Liveness
from exporter.hermes.routing import TaskOwner
from exporter.snapshot import Hold
from exporter.workers.home import WorkerHome
from tests.real.waiting import wait_until
from tests.support.evidence import IN_NEW_PID_NAMESPACE, evidence, holding, puppet
from tests.support.home_scans import scan, sql
from tests.support.small_homes import small_home

NOBODY_HOLDS = HomeEvidence(
    holders=(),
    gateway=None,
    blind=(),
    sees_locks=True,
    sees_deleted=True,
)


def blind(*reasons: Blindness) -> HomeEvidence:
    return HomeEvidence(
        holders=(),
        gateway=None,
        blind=reasons,
        sees_locks=True,
        sees_deleted=True,
    )


def test_a_process_with_the_start_time_of_the_lease_is_alive() -> None:
    with puppet() as process:
        # the value that Hermes writes into a lease
        written = psutil.Process(process.pid).create_time()
        assert lease_alive(process.pid, written, NOBODY_HOLDS) is Liveness.ALIVE


def test_a_process_that_ended_is_dead() -> None:
    with puppet() as process:
        pass
    assert lease_alive(process.pid, time.time(), NOBODY_HOLDS) is Liveness.DEAD


def test_a_zombie_is_dead() -> None:
    with puppet() as process:
        written = psutil.Process(process.pid).create_time()
        process.process.kill()
        wait_until(lambda: process.stat().state == "Z", "a zombie")
        assert lease_alive(process.pid, written, NOBODY_HOLDS) is Liveness.DEAD


def test_a_lease_with_a_reused_pid_is_dead() -> None:
    with puppet() as process:
        earlier = psutil.Process(process.pid).create_time() - 100
        assert lease_alive(process.pid, earlier, NOBODY_HOLDS) is Liveness.DEAD


def test_a_holder_that_began_at_another_time_may_be_the_same_after_the_clock_was_set(
    tmp_path: Path,
) -> None:
    with holding(tmp_path / "home") as process:
        earlier = psutil.Process(process.pid).create_time() - 100
        found = evidence(tmp_path / "home")
        assert lease_alive(process.pid, earlier, found) is Liveness.UNKNOWN


def test_a_lease_of_a_container_is_found_by_the_pid_in_there(
    tmp_path: Path,
) -> None:
    with puppet(wrapper=IN_NEW_PID_NAMESPACE) as process:
        process.do(f"connection = connect({str(tmp_path / 'state.db')!r})")
        found = evidence(tmp_path)
        (holder,) = found.holders
        lease_pid = int(process.do("os.getpid()"))
        assert lease_pid != holder.pid
        assert lease_alive(lease_pid, holder.started_at, found) is Liveness.ALIVE


@pytest.mark.parametrize("reason", [Blindness.HIDEPID, Blindness.PID_NAMESPACE, Blindness.NO_PROC])
def test_a_missing_process_is_unknown_where_processes_may_be_hidden(reason: Blindness) -> None:
    with puppet() as process:
        pass
    assert lease_alive(process.pid, time.time(), blind(reason)) is Liveness.UNKNOWN


def test_a_free_pid_is_dead_even_where_descriptors_are_hidden() -> None:
    with puppet() as process:
        pass
    evidence_there = blind(Blindness.PERMISSIONS)
    assert lease_alive(process.pid, time.time(), evidence_there) is Liveness.DEAD


def test_another_start_time_is_no_proof_where_descriptors_are_hidden() -> None:
    with puppet() as process:
        earlier = psutil.Process(process.pid).create_time() - 100
        evidence_there = blind(Blindness.PERMISSIONS)
        assert lease_alive(process.pid, earlier, evidence_there) is Liveness.UNKNOWN


def test_a_lease_without_a_start_time_never_proves_life() -> None:
    with puppet() as process:
        assert lease_alive(process.pid, None, NOBODY_HOLDS) is Liveness.UNKNOWN
    assert lease_alive(process.pid, None, NOBODY_HOLDS) is Liveness.DEAD


@pytest.mark.parametrize("pid", [0, -1])
def test_an_invalid_pid_is_unknown(pid: int) -> None:
    assert lease_alive(pid, time.time(), NOBODY_HOLDS) is Liveness.UNKNOWN


def test_the_owner_of_a_task_is_named_by_pid_and_start() -> None:
    lives = LivingOwners()
    with puppet() as process:
        ticks = process.stat().start_ticks
        assert lives(TaskOwner(process.pid, ticks))
        assert lives(TaskOwner(process.pid, None))
        assert not lives(TaskOwner(process.pid, ticks - 1))
    assert not lives(TaskOwner(process.pid, ticks))


def test_a_task_without_an_owner_may_have_a_living_one() -> None:
    assert LivingOwners()(TaskOwner(None, None))
    assert LivingOwners("/nonexistent")(TaskOwner(4711, 1))


def test_an_owner_in_a_container_is_known_by_the_pid_that_it_sees_itself(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    with puppet(wrapper=IN_NEW_PID_NAMESPACE) as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        lives = LivingOwners()
        (holder,) = lives.holders = evidence(home).holders
        assert holder.namespace_pid != holder.pid
        assert lives(TaskOwner(holder.namespace_pid, holder.start_ticks))
        assert not lives(TaskOwner(holder.namespace_pid, holder.start_ticks - 1))


def test_an_undelivered_answer_holds_its_sessions_only_while_its_owner_lives(
    tmp_path: Path,
) -> None:
    """Hermes leaves the row as it is when the owner is killed, so nothing in the database moves."""
    home = small_home(tmp_path / "home")
    reader = WorkerHome(str(home))

    def held() -> dict[str, list[Hold]]:
        return {each.id: each.holds for each in scan(reader, home).sessions if each.holds}

    (parent, origin, _) = sorted(each.id for each in scan(reader, home).sessions)
    with puppet() as owner:
        sql(
            home,
            "INSERT INTO async_delegations (delegation_id, origin_session, parent_session_id, "
            "state, dispatched_at, updated_at, delivery_state, owner_pid, owner_started_at) "
            f"VALUES ('a', '{origin}', '{parent}', 'completed', 1, 1, 'pending', {owner.pid}, "
            f"{owner.stat().start_ticks});",
        )
        assert held() == {parent: [Hold.DELEGATION], origin: [Hold.DELEGATION]}
    assert held() == {}
