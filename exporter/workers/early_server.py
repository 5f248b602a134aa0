"""Fork the fork server from this process, instead of starting it as a program.

A command does this before it has loaded anything: both then load at once. The agent does it after
it has loaded what workers need, and before it has read anything: both then share that memory. Where
the system cannot do it, the server is started later, as a program.
"""

from __future__ import annotations

import gc
import os
import socket
import struct
import sys
from typing import Final, NamedTuple, NoReturn

ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
"""The environment of every program of ours that this process starts."""
FORK_SERVER: Final = "exporter.workers.fork_server"
LOAD_LITTLE: Final = "load-little"
"""As an argument of it: workers load what they need themselves, for a command that has few."""
CLONE_NUMBERS: Final = {"x86_64": 56, "aarch64": 220}
"""The system call `clone` by machine. On others each process is started as a program."""


class EarlyServer(NamedTuple):
    """A fork server that is still loading."""

    channel: socket.socket
    pid: int


def own_program(module: str, *arguments: str) -> list[str]:
    """Return the command line that starts a module of ours as a child of this process."""
    return [sys.executable, "-I", "-m", module, str(os.getpid()), *arguments]


def can_fork() -> bool:
    """True if this machine can fork a child for the parent of the calling process."""
    return (
        sys.platform == "linux"
        and struct.calcsize("P") == 8
        and os.uname().machine in CLONE_NUMBERS
    )


def start_loaded() -> EarlyServer | None:
    """Load what workers need and fork a fork server, so that it shares this with the caller."""
    if not _may_fork():
        return None
    from exporter.workers import worker

    worker.load_everything()
    prepare_to_fork()
    return start_early()


def prepare_to_fork() -> None:
    """Leave as little as possible that children would write to, and so copy."""
    gc.collect()
    # Python keeps the names of attributes that it has looked up lately. A child that looks up
    # others gives up these one by one, and each writes to the page of its name.
    # Python 3.13 has the first function and advises against the second; 3.11 has the second alone.
    (getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache)()  # noqa: SLF001
    gc.freeze()  # a collection would write to what is shared


def start_early(*arguments: str) -> EarlyServer | None:
    """Fork a fork server; it ends with the calling thread. None where that is not possible."""
    if not _may_fork():
        return None
    parent = os.getpid()
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        return None
    with theirs:
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            return None
        if pid == 0:
            _serve(theirs, str(parent), *arguments)
    return EarlyServer(ours, pid)


def _may_fork() -> bool:
    if not can_fork() or sys.getfilesystemencoding() != "utf-8":
        return False  # workers read names of files as UTF-8, in every locale
    try:
        return len(os.listdir("/proc/self/task")) == 1  # a fork copies no other thread
    except OSError:
        return False


def _serve(channel: socket.socket, *arguments: str) -> NoReturn:
    """Be the fork server, with the channel and nothing else of the process that was forked."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        for number, source in enumerate((channel.fileno(), null, null)):
            os.dup2(source, number)
        from exporter.workers import fork_server

        fork_server.main(arguments)
        os._exit(0)
    finally:
        os._exit(1)
