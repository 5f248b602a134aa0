"""Messages to the service manager: ready, reloading, stopping, and the watchdog.

This is systemd's notification protocol (`Type=notify`, `WatchdogSec=`): a datagram of KEY=VALUE
lines to the socket in NOTIFY_SOCKET. Without that variable nothing is sent.

A manager may also have opened the port already (socket activation, LISTEN_FDS). Then the unit can
deny the agent all other network access, and nothing that the agent sees can leave this host.

The event loop that answers scrapes sends the watchdog messages, so each message proves that the
loop works. The loop stops sending them once the scan thread has missed its deadline: then only a
restart by the manager helps.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, MutableMapping
from typing import Final

OVERDUE_SECONDS: Final = 300.0
"""How far a scan may exceed its deadline before the scan thread counts as stuck."""


class ScanDeadline:
    """The time by which the scan thread promised its next step."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._deadline = monotonic() + OVERDUE_SECONDS

    def expect(self, within_seconds: float) -> None:
        """Set the deadline; the scan thread calls this before each step that takes time."""
        self._deadline = self._monotonic() + within_seconds + OVERDUE_SECONDS

    def is_kept(self) -> bool:
        return self._monotonic() < self._deadline


class ServiceManager:
    """The connection to the service manager; it sends nothing if there is no manager."""

    def __init__(self, address: str | None, watchdog_seconds: float | None) -> None:
        self._address = address
        self.watchdog_seconds = watchdog_seconds

    @classmethod
    def from_environment(
        cls, environment: MutableMapping[str, str] | None = None
    ) -> ServiceManager:
        """Read the variables and remove them from the environment: only this process needs them."""
        variables = os.environ if environment is None else environment
        address = variables.pop("NOTIFY_SOCKET", "")
        microseconds = variables.pop("WATCHDOG_USEC", "")
        meant_for = variables.pop("WATCHDOG_PID", "") or str(os.getpid())
        if not address.startswith(("/", "@")):  # "@" begins the name of an abstract socket
            return cls(None, None)
        watched = microseconds.isdecimal() and int(microseconds) and meant_for == str(os.getpid())
        return cls(address, int(microseconds) / 1e6 if watched else None)

    def ready(self) -> None:
        self._send("READY=1")

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    async def send_watchdog(self, scan_deadline: ScanDeadline) -> None:
        """Send watchdog messages while the scan deadline is kept, if the manager expects them."""
        if self.watchdog_seconds is None:
            return
        while True:
            if scan_deadline.is_kept():
                self._send("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / 3)  # two messages may be late or lost

    def _send(self, *lines: str) -> None:
        """Send these lines. It never waits or fails: a manager that does not listen must not stop
        the agent.
        """
        if self._address is None:
            return
        # The kernel wants a zero byte where the variable has the "@" of an abstract socket.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode(), address)
        except OSError:
            pass
