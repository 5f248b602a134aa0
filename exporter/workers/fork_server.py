"""The process from which workers and the path probe are forked, so that they share its memory.

It holds the program and nothing else: no home, key or connection. It opens no home and acts for no
user. A process that it forks is a child of the agent (CLONE_PARENT), as if the agent had started
it: it ends with the agent, the agent waits for it, and it outlives the fork server. The first fork
server is itself forked from the agent or command (`early_server`), later ones are programs.
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
from exporter.workers.early_server import (
    CLONE_NUMBERS,
    ENVIRONMENT,
    FORK_SERVER,
    LOAD_LITTLE,
    prepare_to_fork,
)
from exporter.workers.fork_messages import FORK, ForkReply, ForkRequest
from exporter.workers.frames import READY, FrameReader, pack

_CLONE_PARENT: Final = 0x00008000
_REQUEST_BYTES_MAX: Final = 4096
_ARGUMENTS_FIELD: Final = 45
"""The first of four fields of /proc/PID/stat, counted after the name: start and end of the command
line, start and end of the environment.
"""
_PR_SET_NAME: Final = 15
_syscall: Final = ctypes.PyDLL(None, use_errno=True).syscall
_syscall.argtypes, _syscall.restype = [ctypes.c_long] * 6, ctypes.c_long


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """Run `python -m exporter.workers.fork_server PARENT [load-little]`."""
    parent = int(arguments[0])
    _forget_caller(parent)
    with privilege.start_child(parent) as agent:
        if LOAD_LITTLE not in arguments:
            worker.load_everything()  # the workers of an agent share it
        prepare_to_fork()
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
    gc.freeze()  # a garbage collection in a child would write to shared memory, and so copy it
    pid, errno = _clone()
    if pid == 0:
        _run(request, parent, channel)
    return pid, errno


def _clone() -> tuple[int, int]:
    """Fork as os.fork does, but make a child of our parent."""
    python = ctypes.pythonapi
    number, flags = CLONE_NUMBERS[os.uname().machine], _CLONE_PARENT | signal.SIGCHLD
    python.PyOS_BeforeFork()
    # Machines differ in the order of the last three; none of them is read with these flags. No
    # stack is given, so the child goes on with a copy of ours.
    pid: int = _syscall(number, flags, 0, 0, 0, 0)
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
        # Nothing else stays open, above all not the channel for fork requests.
        os.closerange(privilege.CHANNEL + 3, os.sysconf("SC_OPEN_MAX"))
        apsw.randomness(0)  # or SQLite's random numbers could be those of the other children
        _show_as(f"exporter.workers.{request.program}", parent)
        with privilege.start_child(parent) as stream:
            if request.program == "path_probe":
                path_probe.serve(stream)
            else:
                worker.serve(stream, request.uid, request.gid)
        os._exit(0)
    finally:
        os._exit(1)


def _forget_caller(parent: int) -> None:
    """Keep nothing of the process that this one was forked from, as in a new program."""
    os.chdir("/")
    os.closerange(privilege.CHANNEL + 3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()  # it may name sockets of systemd, and hold keys
    os.environ.update(ENVIRONMENT)
    _show_as(FORK_SERVER, parent)


def _show_as(module: str, parent: int) -> None:
    """Let `ps` name this process by the module that it runs, as if it were started so.

    The environment that the kernel shows is replaced, too, by the one that this process now has.
    """
    words = [os.fsencode(word) for word in (sys.executable, "-I", "-m", module, str(parent))]
    privilege.LIBC.prctl(_PR_SET_NAME, os.path.basename(words[0]), 0, 0, 0)
    try:
        with open("/proc/self/stat", "rb") as stat, open("/proc/self/cmdline", "rb") as cmdline:
            fields, shown = stat.read().rpartition(b")")[2].split(), cmdline.read()
        start, end, next_start, last = map(int, fields[_ARGUMENTS_FIELD:][:4])
    except (OSError, ValueError):
        return
    if not 0 < start < end == next_start <= last or ctypes.string_at(start, len(shown)) != shown:
        return  # this is not the layout of Linux
    line = b"\0".join(words).ljust(end - start, b"\0")
    if line[end - start - 1 :] != b"\0":  # too long: the kernel then shows one string
        line = b" ".join(words) + b"\0"
    size = last - start
    line += b"".join(os.fsencode(f"{name}={value}\0") for name, value in ENVIRONMENT.items())
    ctypes.memmove(start, line[: size - 1].ljust(size, b"\0"), size)


if __name__ == "__main__":
    raise SystemExit(main())
