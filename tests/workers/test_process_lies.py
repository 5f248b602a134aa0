"""A worker that acts is not believed either: it can neither go on for ever nor fill the agent."""

from __future__ import annotations

import sys

import msgspec
import pytest

from exporter.errors import WorkerError
from exporter.evidence.openers import KnownOpeners
from exporter.pruner.models import Act, Policy, PruneAction
from exporter.workers import protocol
from exporter.workers.frames import Ready
from exporter.workers.pool import Question, Worker

PROGRAM = """
import os, sys
ready, repeat = (bytes.fromhex(word) for word in sys.argv[1:])
os.write(0, ready)
os.read(0, 65536)
repeat *= 1 + 500_000 // len(repeat)
try:
    while True:
        os.write(0, repeat)
except OSError:
    pass
"""
UNDO = protocol.UndoRequest("/nowhere", 0, "20260101T000000-0000", KnownOpeners(), 0.05)
PLAN = protocol.PlanPruneRequest("/nowhere", msgspec.Raw(b"{}"))
ACTION = PruneAction(
    Act.DELETE_FILE, Policy.REQUEST_DUMPS, "x" * 4000, "old", expected={"size": "y" * 4000}
)
LIES = {
    "no progress": (UNDO, [protocol.Progress(1, 2)], "not asked for"),
    "what it did": (UNDO, [protocol.Progress(1, 2), protocol.OutcomePage(["a"])], "not asked for"),
    "a plan": (PLAN, [protocol.PruneActionsPage([ACTION] * 7)], "too much to tell"),
}


def frame(content: object) -> bytes:
    body = msgspec.json.encode(content)
    return len(body).to_bytes(4) + body


@pytest.mark.parametrize(("question", "told", "why"), LIES.values(), ids=LIES.keys())
def test_who_tells_it_for_ever_is_not_heard_to_the_end(
    question: Question, told: list[protocol.Reply], why: str
) -> None:
    repeat = b"".join(frame(each) for each in told)
    worker = Worker([sys.executable, "-I", "-c", PROGRAM, frame(Ready()).hex(), repeat.hex()])
    try:
        with pytest.raises(WorkerError, match=why):
            for _ in worker.ask(question, 300.0):
                pass
    finally:
        worker.end()
        worker.is_gone(60.0)
