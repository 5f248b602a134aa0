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

from exporter import child, wire
from exporter.errors import ExporterError
from exporter.faults import place_of
from exporter.frames import Ready
from exporter.scan.reader import HomeReader


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """`python -m exporter.worker PARENT [UID GID]`; not for people."""
    with child.begin(int(arguments[0])) as channel:
        if len(arguments) == 3:
            _load_everything()
            _become(int(arguments[1]), int(arguments[2]))
        wire.send(channel, Ready())
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
    child.die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(channel: socket.socket) -> None:
    readers: dict[str, HomeReader] = {}
    while (request := wire.receive_request(channel)) is not None:
        try:
            match request:
                case wire.LookRequest(home, owner):
                    reader = readers.setdefault(home, HomeReader(home))
                    wire.send(channel, wire.LookReply(reader.look(owner)))
                case wire.ReadRequest():
                    reader = readers.setdefault(request.home, HomeReader(request.home))
                    for part in reader.read(request):
                        wire.send(channel, part)
                case wire.ExplainRequest(home, session_id):
                    reader = readers.setdefault(home, HomeReader(home))
                    wire.send(channel, reader.explain(session_id))
                case wire.PlanReapRequest() | wire.ReapRequest():
                    home = request.order.home
                    _run_errand(channel, request, readers.setdefault(home, HomeReader(home)))
                case (
                    wire.UndoRequest(home)
                    | wire.HistoryRequest(home)
                    | wire.PlanPruneRequest(home)
                    | wire.PruneRequest(home)
                    | wire.PurgeRequest(home)
                    | wire.SettleRequest(home)
                    | wire.HealRequest(home)
                    | wire.UpkeepRequest(home)
                ):
                    _run_errand(channel, request, readers.setdefault(home, HomeReader(home)))
        except ConnectionError:
            return
        except ExporterError as error:
            wire.send(channel, wire.Failure(str(error)[:300]))
        except Exception as error:  # noqa: BLE001 - one home's surprise must not end the others
            readers.pop(getattr(request, "home", ""), None)
            wire.send(channel, wire.Failure(place_of(error)))


def _load_errands() -> ModuleType:
    """When first needed: much of it is never."""
    from exporter import errands

    return errands


def _load_everything() -> None:
    """While this process may still read the agent's installation."""
    from exporter import deeds, errands  # noqa: F401 - they are loaded by that
    from exporter.pruner import duty, execute, stocktaking  # noqa: F401 - so are these


def _run_errand(channel: socket.socket, request: wire.Errand, reader: HomeReader) -> None:
    for part in _load_errands().answer(request, reader, lambda reply: wire.send(channel, reply)):
        wire.send(channel, part)
    child.give_back_memory()


if __name__ == "__main__":
    raise SystemExit(main())
