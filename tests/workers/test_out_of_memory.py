"""A home that is too large for its worker is said to be that, not a worker that died."""

from __future__ import annotations

import os
import signal
import socket
import threading

import msgspec
import pytest

from exporter.errors import WorkerError
from exporter.workers import protocol, worker
from exporter.workers.early_server import own_program
from exporter.workers.frames import pack, receive
from exporter.workers.process import ChildProcess
from exporter.workers.protocol import Failure


def test_a_worker_without_memory_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: object) -> object:
        raise MemoryError

    monkeypatch.setattr(worker, "answer", too_large)
    ours, its = socket.socketpair()
    with ours, its:
        answering = threading.Thread(target=worker._answer_all, args=(its,))
        answering.start()
        ours.sendall(pack(protocol.PROBE.name, protocol.ProbeRequest(home="/nowhere", owner=0)))
        frame = receive(ours)
        ours.shutdown(socket.SHUT_WR)
        answering.join()
    assert frame is not None
    assert frame.name == protocol.FAILED
    said = msgspec.json.decode(frame.body, type=Failure).detail
    assert "needs more memory" in said
    assert "LimitDATA=" in said


def test_a_worker_that_the_kernel_kills_is_not_just_dead() -> None:
    child = ChildProcess(own_program("exporter.workers.path_probe"))
    child.wait_ready()
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="memory is short: raise MemoryMax="):
        list(child.receive(10.0))
    child.end()
    child.is_gone(10.0)
