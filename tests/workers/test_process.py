"""The agent does not trust a worker: it cannot answer for ever, nor fill the agent's memory.

Every call of the protocol is tried with every lie.
"""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import signature
from typing import Any

import pytest

from exporter.errors import WorkerError
from exporter.workers import protocol
from exporter.workers.frames import FRAME_BYTES_MAX, READY, pack
from exporter.workers.process import Worker
from exporter.workers.protocol import CALLS, Call, Progress

PROGRAM = """
import os, sys
ready, once, repeat = (bytes.fromhex(word) for word in sys.argv[1:])
os.write(0, ready)
os.read(0, 65536)
try:
    while once:
        once = once[os.write(0, once):]
    repeat *= 1 + 500_000 // max(1, len(repeat))
    while repeat:
        os.write(0, repeat)
except OSError:
    pass
"""
"""It says that it is ready, and answers each request with one message, then another for ever."""


def long_head(length: int) -> bytes:
    return length.to_bytes(4) + b"done\n"


LIES = {
    "no progress": (b"", pack(protocol.PROGRESS, Progress(1, 2)), "too much to tell"),
    "progress that is no number": (pack(protocol.PROGRESS, {"settled": "x"}), b"", "nonsense"),
    "less than nothing": (pack(protocol.PROGRESS, Progress(-1, 2)), b"", "nonsense"),
    "an unknown name": (pack("exec", {"path": "/etc/passwd"}), b"", "not asked for"),
    "the answer of a path probe": (pack("inspect", {"number": 1}), b"", "not asked for"),
    "a reply of another shape": (pack(protocol.DONE, "x" * 600), b"", "nonsense"),
    "a reply that is no JSON": (len(b"done\n{").to_bytes(4) + b"done\n{", b"", "nonsense"),
    "a reply without end": (long_head(2**31), b"x" * 1024, "a frame of"),
    "ready once more": (pack(READY, None), b"", "not asked for"),
}


def liar(once: bytes, repeat: bytes) -> Worker:
    words = [word.hex() for word in (pack(READY, None), once, repeat)]
    return Worker([sys.executable, "-I", "-c", PROGRAM, *words])


def call_and_lie(call: Call[Any, Any, Any], once: bytes, repeat: bytes, why: str) -> None:
    worker = liar(once, repeat)
    try:
        with pytest.raises(WorkerError, match=why):
            worker.call(call, None, 300.0)  # a lying worker does not read it
    finally:
        worker.end()
        worker.is_gone(60.0)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(("once", "repeat", "why"), LIES.values(), ids=LIES)
def test_a_worker_that_lies_is_not_heard_to_the_end(
    call: Call[Any, Any, Any], once: bytes, repeat: bytes, why: str
) -> None:
    call_and_lie(call, once, repeat, why)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_only_a_call_that_has_parts_is_told_any(call: Call[Any, Any, Any]) -> None:
    page = pack(protocol.PART, protocol.UsagePage([]))
    if call.parts is None:
        call_and_lie(call, page, b"", "not asked for")
    else:
        call_and_lie(call, b"", page, "too much to tell")
    call_and_lie(call, pack(protocol.PART, {"type": "exec"}), b"", "nonsense|not asked for")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_nothing_but_the_reply_may_be_long(call: Call[Any, Any, Any]) -> None:
    head = (FRAME_BYTES_MAX + 100).to_bytes(4) + f"{protocol.PROGRESS}\n".encode()
    call_and_lie(call, head, b"x" * 1024, "a frame of|too much to tell")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_reply_is_longer_than_its_call_allows(call: Call[Any, Any, Any]) -> None:
    assert FRAME_BYTES_MAX <= call.reply_bytes_max <= protocol.PLAN_BYTES_MAX
    call_and_lie(call, long_head(call.reply_bytes_max + 1), b"", "a frame of")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_call_has_a_handler_of_one_shape_and_names_its_home(
    call: Call[Any, Any, Any],
) -> None:
    assert list(signature(call.handler).parameters) == ["home", "request", "reporter"]
    assert call.handler.__module__.startswith("exporter.workers.")
    assert import_module(call.handler.__module__)
    assert {"home", "owner"} <= set(dir(call.request))
