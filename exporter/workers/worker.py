"""The process that touches homes: started by the agent, running as the homes' owner.

It answers requests one at a time and decides nothing. A hung filesystem hangs it alone; a hostile
home can at most make it lie about that home.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Sequence
from types import ModuleType

from exporter.errors import ExporterError, place_of
from exporter.scan.fork_pool import die_with_parent
from exporter.workers import privilege, protocol
from exporter.workers.frames import Ready
from exporter.workers.home import WorkerHome


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """`python -m exporter.workers.worker PARENT [UID GID]`; not for people."""
    with privilege.begin(int(arguments[0])) as channel:
        if len(arguments) == 3:
            _load_everything()
            _become(int(arguments[1]), int(arguments[2]))
        protocol.send(channel, Ready())
        _answer(channel)
    return 0


def _become(uid: int, gid: int) -> None:
    """Drop the agent's privileges for good, groups first, before any home is touched.

    The modules are loaded by now: the owner need not be able to read the agent's installation.
    """
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if os.getuid() != uid or os.geteuid() != uid or os.getgid() != gid:
        raise SystemExit("could not drop privileges")
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(channel: socket.socket) -> None:
    readers: dict[str, WorkerHome] = {}
    while (request := protocol.receive_request(channel)) is not None:
        try:
            match request:
                case protocol.LookRequest(home, owner):
                    reader = readers.setdefault(home, WorkerHome(home))
                    protocol.send(channel, protocol.LookReply(reader.look(owner)))
                case protocol.ReadRequest():
                    reader = readers.setdefault(request.home, WorkerHome(request.home))
                    for part in reader.read(request):
                        protocol.send(channel, part)
                case protocol.ExplainRequest(home, session_id):
                    reader = readers.setdefault(home, WorkerHome(home))
                    protocol.send(channel, reader.explain(session_id))
                case protocol.PlanReapRequest() | protocol.ReapRequest():
                    home = request.order.home
                    _run_errand(channel, request, readers.setdefault(home, WorkerHome(home)))
                case (
                    protocol.UndoRequest(home)
                    | protocol.HistoryRequest(home)
                    | protocol.PlanPruneRequest(home)
                    | protocol.PruneRequest(home)
                    | protocol.PurgeRequest(home)
                    | protocol.SettleRequest(home)
                    | protocol.HealRequest(home)
                    | protocol.UpkeepRequest(home)
                ):
                    _run_errand(channel, request, readers.setdefault(home, WorkerHome(home)))
        except ConnectionError:
            return
        except ExporterError as error:
            protocol.send(channel, protocol.Failure(str(error)[:300]))
        except Exception as error:  # noqa: BLE001 - one home's surprise must not end the others
            readers.pop(getattr(request, "home", ""), None)
            protocol.send(channel, protocol.Failure(place_of(error)))


def _load_errands() -> ModuleType:
    """When first needed: much of it is never."""
    from exporter.workers import errands

    return errands


def _load_everything() -> None:
    """While this process may still read the agent's installation."""
    from exporter.pruner import planning  # noqa: F401 - so are these
    from exporter.pruner.apply import execute  # noqa: F401 - so are these
    from exporter.pruner.gather import inventory_reader  # noqa: F401 - so are these
    from exporter.workers import (
        deeds,  # noqa: F401 - they are loaded by that
        errands,  # noqa: F401 - they are loaded by that
    )


def _run_errand(channel: socket.socket, request: protocol.Errand, reader: WorkerHome) -> None:
    for part in _load_errands().answer(
        request, reader, lambda reply: protocol.send(channel, reply)
    ):
        protocol.send(channel, part)
    privilege.give_back_memory()


if __name__ == "__main__":
    raise SystemExit(main())
