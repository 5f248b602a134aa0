"""After a failed prune the agent waits before it tries again, and says so once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from exporter.errors import WorkerError
from tests.agent.test_auto_prune_races import EMPTY, PRUNING, empty_sessions, rounds, sessions
from tests.real.waiting import wait_until


def test_a_failed_prune_is_tried_again_later_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each try would cost a process: a home under pressure is checked at every scan."""
    caplog.set_level(logging.INFO, "exporter.pruner")
    home = empty_sessions(tmp_path)
    tries: list[int] = []
    broken = True
    with rounds(home, tmp_path, PRUNING) as running:
        pruner, begin = running._pruner, running._pool.temporary
        assert pruner is not None

        def temporary(owner: int) -> object:
            tries.append(owner)
            if broken:
                raise WorkerError("the disk is read-only")
            return begin(owner)

        running._pool.temporary = temporary  # type: ignore[method-assign, assignment]

        def scan() -> None:
            running.run(60.0)
            wait_until(lambda: not pruner._busy, "no run is under way")

        def blocked() -> list[str]:
            (state,) = running.states()
            return state.prune.blocked if state.prune is not None else []

        while not pruner._failed:
            scan()
        pruner._failed[str(home)] = pruner._failed[str(home)]._replace(retry_at=float("inf"))
        for _ in range(4):
            scan()
        assert len(tries) == 1, "no try before its time"
        assert blocked() == ["run_failed"]  # metric, page and status have it
        broken = False
        pruner._failed[str(home)] = pruner._failed[str(home)]._replace(retry_at=0.0)
        scan()
        scan()
        assert blocked() == []
    assert len(tries) == 2
    assert sessions(home) < len(EMPTY)
    assert [record.message for record in caplog.records] == [
        "prune failed, tried again later",
        "prunes succeed again",
        "pruned",
    ]
