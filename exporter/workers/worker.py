"""The process that touches homes: started by the agent, running as the homes' owner.

It answers one request at a time, and does at most what the request says. A filesystem that hangs
stops only this process; a hostile home can at most make it lie about that home.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import sys
import time
from collections.abc import Sequence
from functools import cache
from math import inf
from typing import Any, Final

import apsw

from exporter.errors import ExporterError, HomeError, error_location
from exporter.runs.folder import JournalMendedError, RunBusyError, RunError
from exporter.runs.journal import mend_journal
from exporter.runs.journal_rows import DAMAGE
from exporter.scan.fork_pool import die_with_parent
from exporter.workers import privilege, protocol
from exporter.workers.frames import FRAME_BYTES_MAX, READY, Frame, pack, receive
from exporter.workers.home import WorkerHome
from exporter.workers.privilege import MEMORY_BYTES_MAX
from exporter.workers.protocol import CALLS, Call, Failure, Progress, Refusal

_PROGRESS_SECONDS: Final = 0.2


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """Run `python -m exporter.workers.worker PARENT [UID GID]`; the agent starts it."""
    with privilege.start_child(int(arguments[0])) as channel:
        serve(channel, *map(int, arguments[1:]))
    return 0


def serve(channel: socket.socket, uid: int | None = None, gid: int | None = None) -> None:
    """Become this user for good, if one is given, and answer until the agent is gone."""
    if uid is not None and gid is not None:
        load_everything()
        _drop_privileges(uid, gid)
    channel.sendall(pack(READY, None))
    _answer_all(channel)


@cache  # a worker that is forked finds it done, and need not touch all modules again
def load_everything() -> None:
    """Load every handler: after the privilege drop the installation may be out of reach."""
    from exporter.hermes import yaml_document  # noqa: F401 - it is loaded by that
    from exporter.pruner import planning  # noqa: F401 - so is this
    from exporter.pruner.gather import inventory_reader  # noqa: F401 - and this
    from exporter.workers import kept_readings  # noqa: F401 - and this

    for call in CALLS.values():
        call.load()


def _drop_privileges(uid: int, gid: int) -> None:
    """Drop the agent's privileges permanently, groups first, before any home is touched."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if os.getuid() != uid or os.geteuid() != uid or os.getgid() != gid:
        raise SystemExit("could not drop privileges")
    die_with_parent()  # again: the change of uid has cancelled it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


OUT_OF_MEMORY: Final = (
    f"it needs more memory than its worker may have ({MEMORY_BYTES_MAX >> 20} MiB, or LimitDATA= "
    "of the service if that is less): raise that, or prune its old sessions"
)


class _Reporter:
    """Sends what a handler reports before its reply."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._sent_at = -inf
        self._cancelled = False

    def part(self, part: object) -> None:
        self.send(protocol.PART, part)

    def progress(self, settled: int, total: int) -> None:
        """Send progress, at most a few times a second: it tells the agent that work continues."""
        if time.monotonic() - self._sent_at >= _PROGRESS_SECONDS:
            self._sent_at = time.monotonic()
            self.send(protocol.PROGRESS, Progress(settled, total))

    def cancelled(self) -> bool:
        """True once the agent has asked to stop; the agent says nothing else before the reply."""
        if not self._cancelled and select.select([self._channel], (), (), 0)[0]:
            frame = receive(self._channel)
            self._cancelled = frame is None or frame.name == protocol.CANCEL
        return self._cancelled

    def next_call(self) -> Frame | None:
        """Return the next request; a cancellation that came after the reply is no request."""
        self._cancelled = False
        while (frame := receive(self._channel)) is not None and frame.name == protocol.CANCEL:
            pass
        return frame

    def send(self, name: str, message: object, bytes_max: int = FRAME_BYTES_MAX) -> None:
        frame = pack(name, message)
        if len(frame) > bytes_max:
            raise ExporterError(f"an answer of {len(frame)} bytes is longer than {bytes_max}")
        self._channel.sendall(frame)


def _answer_all(channel: socket.socket) -> None:
    homes: dict[str, WorkerHome] = {}
    reporter = _Reporter(channel)
    while (frame := reporter.next_call()) is not None:
        call = CALLS[frame.name]
        request = call.decode_request(frame.body)
        home = homes.get(request.home)
        if home is None:
            home = homes[request.home] = WorkerHome(request.home)
        try:
            reporter.send(
                protocol.DONE, answer(call, home, request, reporter), call.reply_bytes_max
            )
        except ConnectionError:
            return
        except RunBusyError as error:
            reporter.send(protocol.REFUSED, Refusal(str(error)[:300], busy=True))
        except HomeError as error:
            reporter.send(protocol.REFUSED, Refusal(str(error)[:300]))
        except ExporterError as error:
            reporter.send(protocol.FAILED, Failure(str(error)[:300]))
        except (MemoryError, apsw.NoMemError):
            homes.clear()  # what they remember is what the memory is needed for
            reporter.send(protocol.FAILED, Failure(OUT_OF_MEMORY))
        except Exception as error:  # noqa: BLE001 - an error in one home must not end the others
            homes.pop(request.home, None)
            reporter.send(protocol.FAILED, Failure(error_location(error)))


def answer(
    call: Call[Any, Any, Any], home: WorkerHome, request: Any, reporter: protocol.Reporter
) -> Any:
    """Call the handler; once more if the journal was damaged: by then it has been repaired.

    A run finds damage under its lock, and repairs it there. What acts on a home may find it before,
    by any error, since the home's owner may write anything into the journal.
    """
    try:
        return call.handler(home, request, reporter)
    except JournalMendedError:
        pass
    except (RunError, *DAMAGE):
        if not call.acts or not mend_journal(request.home, request.owner):
            raise
    return call.handler(home, request, reporter)


if __name__ == "__main__":
    raise SystemExit(main())
