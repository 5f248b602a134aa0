"""Questions of pages are answered between two scans, a few at a time, without private text."""

from __future__ import annotations

import threading
import time

import pytest

from exporter.agent.host_queries import ScannerQueue, public_target
from exporter.web.queries import QueryError

OWN = "20260101_000001_abcdef"


def test_work_is_done_by_the_thread_that_waits() -> None:
    queue = ScannerQueue()
    waiting = threading.Thread(target=queue.wait, args=(600.0,))
    waiting.start()
    done = [queue.submit(threading.get_ident).result(60) for _ in range(3)]
    assert done == [waiting.ident] * 3
    with pytest.raises(ZeroDivisionError):
        queue.submit(lambda: 1 / 0).result(60)
    queue.wake()
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_wake_before_the_wait_is_not_lost() -> None:
    queue = ScannerQueue()
    queue.wake()
    began = time.monotonic()
    queue.wait(600.0)
    assert time.monotonic() - began < 300


def test_more_than_a_few_questions_are_refused() -> None:
    queue = ScannerQueue()
    waiting = [queue.submit(lambda: 1) for _ in range(4)]
    with pytest.raises(QueryError, match="too many"):
        queue.submit(lambda: 1)
    queue.wait(0.001)
    assert waiting[0].result(60) == 1


@pytest.mark.parametrize(
    "target",
    [
        OWN,
        f"sessions/session_{OWN}.json",
        f"sessions/request_dump_{OWN}_20260101_000000_000000.json",
        f"{OWN}.jsonl",
        "checkpoints/0123456789abcdef",
        "0123456789abcdef",
    ],
)
def test_targets_that_hermes_named_are_shown(target: str) -> None:
    assert public_target(target) == target


@pytest.mark.parametrize(
    "target",
    [
        "my customer's id",
        "sessions/session_my customer.json",
        "checkpoints/../../etc",
        f"work/{OWN}/secret",
        f"checkpoints/{OWN}/customer",
    ],
)
def test_targets_that_a_client_named_are_shown_as_hashes(target: str) -> None:
    shown = public_target(target)
    assert "sha256:" in shown
    assert "customer" not in shown
    assert "secret" not in shown
