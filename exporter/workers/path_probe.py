"""A process of its own for lstat of paths that may hang; `path_prober` is the agent's end of it.

It runs for as long as the agent does, so it loads little.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import socket
import sys
import threading
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from exporter.discovery.inspection import Inspection, inspect
from exporter.workers import privilege
from exporter.workers.frames import READY, pack, receive

INSPECT = "inspect"


class InspectRequest(Struct, frozen=True):
    """What is at this path?"""

    number: int
    """Comes back with the answer, which may be long in coming."""
    path: str
    as_uid: int | None = None
    """Look with this user's rights; None: with the process's own."""


class InspectReply(Struct, frozen=True):
    number: int
    inspection: Inspection


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """`python -m exporter.workers.path_probe PARENT`; not for people."""
    with privilege.start_child(int(arguments[0])) as channel:
        sending = threading.Lock()
        channel.sendall(pack(READY, None))
        while (frame := receive(channel)) is not None:
            request = msgspec.json.decode(frame.body, type=InspectRequest)
            threading.Thread(target=_answer, args=(channel, sending, request), daemon=True).start()
    return 0


def _answer(channel: socket.socket, sending: threading.Lock, request: InspectRequest) -> None:
    if request.as_uid is not None:
        _take_rights_of(request.as_uid)
    found = inspect(request.path)
    if not is_text(found.resolved):
        found = Inspection(exists=True, unreadable="it leads to a name that is not UTF-8")
    with sending:
        try:
            channel.sendall(pack(INSPECT, InspectReply(request.number, found)))
        except OSError:
            pass  # the agent is gone, and so will this process be


def _take_rights_of(uid: int) -> None:
    """Let this thread, and no other, look at files with this user's rights."""
    if os.geteuid() != 0 or sys.platform != "linux":
        return
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:
        gid = uid
    library = ctypes.CDLL(None)
    library.setfsgid(gid)
    library.setfsuid(uid)


def is_text(path: str) -> bool:
    """Names that are no text can be no labels, nor be told to a worker."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
