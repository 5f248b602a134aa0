"""An agent without a free descriptor says so in one line, and in one that it is over."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from exporter.web import accept_failures
from tests.real.agent import agent
from tests.real.waiting import wait_until
from tests.support.small_homes import small_home


def test_an_agent_that_cannot_accept_writes_one_line(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home", 1)
    with agent(tmp_path, [home]) as running, ExitStack() as stack:
        highest = max(int(each) for each in os.listdir(f"/proc/{running.pid}/fd"))
        before = resource.prlimit(running.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (highest + 1, before[1]))
        host, _, port = running.address.rpartition(":")
        for _ in range(200):
            stack.enter_context(socket.create_connection((host, int(port)), 60))
        told = "no connection can be accepted"
        wait_until(lambda: told in running.log(), "it says that it cannot accept")
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, before)
        wait_until(lambda: running.get("/-/healthy")[0] == 200, "it answers again")
        # A scan that begins in this moment may fail too; that is told by another line.
        lines = [line for line in running.log().splitlines() if "accept" in line]
    assert len(lines) == 1, lines
    assert 'error="Too many open files"' in lines[0]
    assert "LimitNOFILE=" in lines[0]


def test_the_end_is_told_and_other_errors_as_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accept_failures, "_QUIET_SECONDS", 0.0)
    context = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(24, "Too many open files"),
    }

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop_default: list[object] = []
        monkeypatch.setattr(loop, "default_exception_handler", loop_default.append)
        accept_failures.AcceptFailures(loop)
        for _ in range(100):
            loop.call_exception_handler(context)
        loop.call_exception_handler({"message": "another"})
        assert loop_default == [{"message": "another"}]
        over = asyncio.Event()
        loop.call_later(0.0, over.set)
        await over.wait()

    with caplog.at_level("INFO"):
        asyncio.run(main())
    assert [each.message for each in caplog.records if each.name == "exporter.web"] == [
        "no connection can be accepted",
        "connections are accepted again",
    ]
