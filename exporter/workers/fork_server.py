"""The process from which workers and the path probe are forked, so that they share its memory.

It holds the program and nothing else: no home, key or connection. It opens no home and acts for no
user. What it forks is a child of the agent (CLONE_PARENT), as if the agent had started it: it ends
with the agent, the agent waits for it, and it outlives this process.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import apsw
import msgspec

from exporter.workers import path_probe, privilege, worker
from exporter.workers.early_server import LOAD_LITTLE
from exporter.workers.fork_messages import CLONE_NUMBERS, FORK, ForkReply, ForkRequest
from exporter.workers.frames import READY, FrameReader, pack

_MODULE: Final = "exporter.workers.fork_server"
_CLONE_PARENT: Final = 0x00008000
_REQUEST_BYTES_MAX: Final = 4096
_ARGUMENTS_FIELD: Final = 45
"""Of /proc/PID/stat, counted behind the name: where the command line begins; then where it ends."""


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """Run `python -m exporter.workers.fork_server PARENT [load-little]`; the agent, or a command,
    starts it.
    """
    parent = int(arguments[0])
    # As a program that `subprocess` starts: a command starts this one by other means.
    os.chdir("/")
    os.closerange(privilege.CHANNEL + 3, os.sysconf("SC_OPEN_MAX"))
    with privilege.start_child(parent) as agent:
        if LOAD_LITTLE not in arguments:
            worker.load_everything()  # the workers of an agent share it
        gc.collect()
        agent.sendall(pack(READY, None))
        while True:
            content, descriptors, _, _ = socket.recv_fds(agent, _REQUEST_BYTES_MAX, 1)
            if not content:
                return 0
            (frame,) = FrameReader().feed(content)
            request = msgspec.json.decode(frame.body, type=ForkRequest)
            (channel,) = descriptors
            pid, errno = _fork(request, parent, channel)
            os.close(channel)
            agent.sendall(pack(FORK, ForkReply(pid, errno)))


def _fork(request: ForkRequest, parent: int, channel: int) -> tuple[int, int]:
    """Fork a process that runs the program; return its PID, or -1 and the error number."""
    gc.freeze()  # a collection in a child would write to what is shared, and so copy it
    pid, errno = _clone()
    if pid == 0:
        _run(request, parent, channel)
    return pid, errno


def _clone() -> tuple[int, int]:
    """Fork as os.fork does, but make a child of our parent."""
    python, syscall = ctypes.pythonapi, ctypes.PyDLL(None, use_errno=True).syscall
    syscall.argtypes, syscall.restype = [ctypes.c_long] * 6, ctypes.c_long
    number, flags = CLONE_NUMBERS[os.uname().machine], _CLONE_PARENT | signal.SIGCHLD
    python.PyOS_BeforeFork()
    # Machines differ in the order of the last three; none of them is read with these flags. No
    # stack is given, so the child goes on with a copy of ours.
    pid: int = syscall(number, flags, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0, 0
    errno = ctypes.get_errno() if pid < 0 else 0
    python.PyOS_AfterFork_Parent()
    return pid, errno


def _run(request: ForkRequest, parent: int, channel: int) -> NoReturn:
    """Make this process as clean as a program that was just started, and run it."""
    try:
        os.setsid()
        os.dup2(channel, privilege.CHANNEL)
        # Nothing else stays open, above all not the channel on which processes are asked for.
        os.closerange(privilege.CHANNEL + 3, os.sysconf("SC_OPEN_MAX"))
        apsw.randomness(0)  # or SQLite's random numbers could be those of the other children
        _show_as(f"exporter.workers.{request.program}")
        with privilege.start_child(parent) as stream:
            if request.program == "path_probe":
                path_probe.serve(stream)
            else:
                worker.serve(stream, request.uid, request.gid)
        os._exit(0)
    finally:
        os._exit(1)


def _show_as(module: str) -> None:
    """Let `ps` name this process by the module that it runs, as if it were started so."""
    now = b"\0".join(map(os.fsencode, sys.orig_argv))
    then = b"\0".join(os.fsencode(module if word == _MODULE else word) for word in sys.orig_argv)
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start = int(fields[_ARGUMENTS_FIELD])
        size = int(fields[_ARGUMENTS_FIELD + 1]) - start - 1
    except (OSError, ValueError, IndexError):
        return
    if size == len(now) >= len(then) and ctypes.string_at(start, size) == now:
        ctypes.memmove(start, then.ljust(size, b"\0"), size)


if __name__ == "__main__":
    raise SystemExit(main())
