"""The process that touches homes: started by the agent, running as the homes' owner.

It answers requests one at a time and decides nothing. A hung filesystem hangs it alone; a hostile
home can at most make it lie about that home. The scout is a worker that keeps the agent's
privileges and only ever calls `lstat`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final

from exporter import wire
from exporter.errors import ExporterError
from exporter.scan.inspect import inspect
from exporter.scan.reader import HomeReader
from exporter.snapshot import Snapshot

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38
CHANNEL: Final = 0
"""The descriptor that leads to the agent: standard input, the only one a worker inherits."""


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """`python -m exporter.worker PARENT [UID GID]`; not for people."""
    parent = int(arguments[0])
    _die_with(parent)
    if len(arguments) == 3:
        _become(int(arguments[1]), int(arguments[2]))
    with socket.socket(fileno=os.dup(CHANNEL)) as channel:
        _answer(channel)
    return 0


def _die_with(parent: int) -> None:
    """A worker without its agent has no business here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's ^C is for the agent to handle
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(0)


def _become(uid: int, gid: int) -> None:
    """Drop the agent's privileges for good, groups first, before any home is touched.

    The modules are loaded by now: the owner need not be able to read the agent's installation.
    """
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if os.getuid() != uid or os.geteuid() != uid or os.getgid() != gid:
        raise SystemExit("could not drop privileges")
    if sys.platform == "linux":
        # Changing the uid clears the signal set above.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(channel: socket.socket) -> None:
    readers: dict[str, HomeReader] = {}
    while (request := wire.receive_request(channel)) is not None:
        try:
            match request:
                case wire.InspectRequest(path):
                    wire.send(channel, wire.InspectReply(inspect(path)))
                case wire.LookRequest(home, owner):
                    reader = readers.setdefault(home, HomeReader(home))
                    wire.send(channel, wire.LookReply(reader.look(owner)))
                case wire.ReadRequest():
                    reader = readers.setdefault(request.home, HomeReader(request.home))
                    for part in reader.read(request):
                        final = isinstance(part, Snapshot)
                        wire.send(channel, wire.ReadReply(part) if final else part)  # type: ignore[arg-type]
        except ConnectionError:
            return
        except ExporterError as error:
            wire.send(channel, wire.Failure(str(error)[:300]))
        except Exception as error:  # noqa: BLE001 - one home's surprise must not end the others
            readers.pop(getattr(request, "home", ""), None)
            wire.send(channel, wire.Failure(_place_of(error)))


def _place_of(error: BaseException) -> str:
    """Where it happened, without what was being handled: that could be private."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    where = os.path.basename(trace.tb_frame.f_code.co_filename)
    return f"{type(error).__name__} in {where}:{trace.tb_lineno}"


if __name__ == "__main__":
    raise SystemExit(main())
