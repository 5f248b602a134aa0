"""A separate process for lstat of paths that may hang; `path_prober` is the agent's side.

It runs as long as the agent, so it loads few modules.
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
    """The question: what is at this path?"""

    number: int
    """Returned with the answer, which may come late."""
    path: str
    as_uid: int | None = None
    """Look with this user's rights; None: with the rights of the process."""


class InspectReply(Struct, frozen=True):
    number: int
    inspection: Inspection


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """Run `python -m exporter.workers.path_probe PARENT`; the agent starts it."""
    with privilege.start_child(int(arguments[0])) as channel:
        serve(channel)
    return 0


def serve(channel: socket.socket) -> None:
    """Answer until the agent is gone."""
    sending = threading.Lock()
    channel.sendall(pack(READY, None))
    while (frame := receive(channel)) is not None:
        request = msgspec.json.decode(frame.body, type=InspectRequest)
        threading.Thread(target=_answer, args=(channel, sending, request), daemon=True).start()


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
            pass  # the agent is gone, and this process will end too


def _take_rights_of(uid: int) -> None:
    """Let this thread, and no other, access files with this user's rights."""
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
    """True if the path is valid UTF-8; other names cannot be labels or be sent to a worker."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
