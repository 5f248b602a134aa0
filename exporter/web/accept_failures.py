"""Log that no connection can be accepted, because the process has no file descriptor left.

asyncio tries again each second, and logs an error for every connection that waits: hundreds of
lines. This handler logs one line when it begins and one when it is over.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from exporter import logs

_QUIET_SECONDS: Final = 30.0
"""asyncio tries each second. After this time without a failure it is over."""
_MESSAGE: Final = "socket.accept() out of system resource"
"""asyncio's own text; nothing else marks this failure."""

log = logs.get("web")


class AcceptFailures:
    """The exception handler of the agent's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._end_timer: asyncio.TimerHandle | None = None
        loop.set_exception_handler(self._handle)

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("message") != _MESSAGE:
            loop.default_exception_handler(context)
            return
        if self._end_timer is None:
            error = context.get("exception")
            log.error(
                "no connection can be accepted",
                error=error.strerror if isinstance(error, OSError) else str(error),
                fix="raise LimitNOFILE= of the unit, or `ulimit -n`",
            )
        else:
            self._end_timer.cancel()
        self._end_timer = loop.call_later(_QUIET_SECONDS, self._end)

    def _end(self) -> None:
        self._end_timer = None
        log.info("connections are accepted again")
