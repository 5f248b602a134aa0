"""What the agent tells a service manager: ready, reloading, stopping, and alive again and again.

This is systemd's notification protocol (`Type=notify`, `WatchdogSec=`): a datagram of KEY=VALUE
lines to the socket named in NOTIFY_SOCKET. Without that variable nothing is sent.

A manager may also have opened the port already (socket activation, LISTEN_FDS). Then the agent
needs no network of its own and can be denied one: nothing it sees could leave this host.

The loop that answers scrapes sends the sign of life, so that it proves itself by sending. It stays
silent once the scanner has missed its own deadline: then a restart is all that would help.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, MutableMapping
from typing import Final

OVERDUE_SECONDS: Final = 300.0
"""How far a scan may be beyond its deadline before the scanner is held to be stuck."""


class ScanDeadline:
    """When the scanner will be heard of next, at the latest, by its own word."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._deadline = monotonic() + OVERDUE_SECONDS

    def expect(self, within_seconds: float) -> None:
        """Called by the scanner before each step that takes time."""
        self._deadline = self._monotonic() + within_seconds + OVERDUE_SECONDS

    def is_kept(self) -> bool:
        return self._monotonic() < self._deadline


class ServiceManager:
    """The way to the service manager; one that leads nowhere if there is none."""

    def __init__(self, address: str | None, watchdog_seconds: float | None) -> None:
        self._address = address
        self.watchdog_seconds = watchdog_seconds

    @classmethod
    def from_environment(
        cls, environment: MutableMapping[str, str] | None = None
    ) -> ServiceManager:
        """Take the variables out of the environment: they are meant for this process alone."""
        variables = os.environ if environment is None else environment
        address = variables.pop("NOTIFY_SOCKET", "")
        microseconds = variables.pop("WATCHDOG_USEC", "")
        meant_for = variables.pop("WATCHDOG_PID", "") or str(os.getpid())
        if not address.startswith(("/", "@")):
            return cls(None, None)
        watched = microseconds.isdecimal() and int(microseconds) and meant_for == str(os.getpid())
        return cls(address, int(microseconds) / 1e6 if watched else None)

    def ready(self) -> None:
        self._tell("READY=1")

    def reloading(self) -> None:
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    async def send_watchdog(self, scan_deadline: ScanDeadline) -> None:
        """Send signs of life for as long as there is life, if anybody waits for them."""
        if self.watchdog_seconds is None:
            return
        while True:
            if scan_deadline.is_kept():
                self._tell("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / 3)

    def _tell(self, *lines: str) -> None:
        """Never wait, never fail: a manager that does not listen is no reason to stop serving."""
        if self._address is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode(), address)
        except OSError:
            pass
