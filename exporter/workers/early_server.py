"""Start the fork server of a command before the modules are loaded that use it.

It loads next to nothing itself. Where the system cannot do it, the server is started later.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Final, NamedTuple

ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
"""The environment of every program of ours that this process starts."""
FORK_SERVER: Final = "exporter.workers.fork_server"
LOAD_LITTLE: Final = "load-little"
"""As an argument of it: workers load what they need themselves, for a command that has few."""


class EarlyServer(NamedTuple):
    """A fork server that is still loading."""

    channel: socket.socket
    pid: int


def own_program(module: str, *arguments: str) -> list[str]:
    """Return the command line that starts a module of ours as a child of this process."""
    return [sys.executable, "-I", "-m", module, str(os.getpid()), *arguments]


def start_early() -> EarlyServer | None:
    """Start a fork server; it ends with the calling thread. None where that is not possible."""
    if sys.platform != "linux" or not sys.executable:
        return None
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        return None
    with theirs:
        try:
            command = own_program(FORK_SERVER, LOAD_LITTLE)
            pid = os.posix_spawn(
                command[0],
                command,
                ENVIRONMENT,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
            )
        except (OSError, NotImplementedError):
            ours.close()
            return None
    return EarlyServer(ours, pid)
