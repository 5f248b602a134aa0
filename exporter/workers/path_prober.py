"""Probe paths that may never answer.

Adopting a home needs an lstat with the agent's privileges. On a dead mount that blocks, so another
process does it, with one thread per probe. A probe without an answer in time stays pending and is
not repeated. Its late answer shows that the path works again.

Users choose these paths. Each user has a limit on pending probes and on waiting time per scan, so
no user can block the probes of another user's home.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from exporter import logs
from exporter.discovery.inspection import Inspection
from exporter.errors import WorkerError
from exporter.workers.path_probe import INSPECT, InspectReply, InspectRequest
from exporter.workers.process import END_WAIT_SECONDS, ChildProcess, start_path_probe
from exporter.workers.protocol import decode

WAIT_SECONDS: Final = 5.0
"""How long one scan waits for paths that do not answer, all together."""
_WAIT_PER_USER_SECONDS: Final = 2.0
_GRACE_SECONDS: Final = 0.25
"""Time for a path after a scan's waiting time is used up."""
_USER_GRACE_SECONDS: Final = 0.05
"""Time for a user's path after this user's share of the waiting time is used up."""
_PENDING_MAX: Final = 1024
_PENDING_PER_USER: Final = 16
_ATTEMPTS: Final = 2

_REPLY: Final = msgspec.json.Decoder(InspectReply)

log = logs.get("path_probe")


class _Probe(NamedTuple):
    path: str
    named_by_uid: int | None
    as_uid: int | None


class PathProber:
    """The agent's side of the path probe process."""

    def __init__(
        self,
        start: Callable[[], ChildProcess] = start_path_probe,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start = start
        self._monotonic = monotonic
        self._process: ChildProcess | None = None
        self._pending: dict[int, _Probe] = {}
        self._waited: dict[int, float] = {}
        self._number = 0
        self._wait_until = 0.0
        self._closed = False
        self._changes = logs.StateChange()

    def begin_scan(self) -> None:
        """Take answers that came late, and start a new waiting time."""
        self._wait_until = self._monotonic() + WAIT_SECONDS
        self._waited.clear()
        try:
            while self._process is not None:
                self._receive_answers(self._monotonic())
        except TimeoutError:
            pass
        except WorkerError as error:
            self._drop_process(error)

    def hangs(self, path: str) -> bool:
        """True if a probe of this path is still pending."""
        return any(wanted.path == path for wanted in self._pending.values())

    def inspect(
        self, path: str, named_by_uid: int | None = None, *, with_rights_of_user: bool = False
    ) -> Inspection | None:
        """Return what is at this path; None if it does not answer.

        `named_by_uid` is the user that named the path, None for the operator. With
        `with_rights_of_user` the probe has only that user's rights.
        """
        if self._closed or self.hangs(path):
            return None
        if not self._may_probe(named_by_uid):
            return Inspection(exists=True, unreadable="too many other paths do not answer")
        wanted = _Probe(path, named_by_uid, named_by_uid if with_rights_of_user else None)
        for _ in range(_ATTEMPTS):
            try:
                return self._send_probe(wanted)
            except TimeoutError:
                return None
            except WorkerError as error:
                self._drop_process(error)
        return None

    def _may_probe(self, named_by_uid: int | None) -> bool:
        if named_by_uid is None:
            return True  # the operator names few paths, and no other user can add to them
        own_pending = sum(wanted.named_by_uid == named_by_uid for wanted in self._pending.values())
        return own_pending < _PENDING_PER_USER and len(self._pending) < _PENDING_MAX

    def close(self) -> None:
        """Stop permanently; a probe that another thread waits for returns None."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()
            process.is_gone(END_WAIT_SECONDS)

    def _send_probe(self, wanted: _Probe) -> Inspection:
        if self._process is None:
            self._process = self._start()
            self._process.wait_ready()
            self._wait_until = self._monotonic() + WAIT_SECONDS
        began = self._monotonic()
        self._number += 1
        self._pending[self._number] = wanted
        self._process.send(INSPECT, InspectRequest(self._number, wanted.path, wanted.as_uid))
        deadline = self._deadline(wanted.named_by_uid, began)
        try:
            while True:
                answers = self._receive_answers(deadline)
                if self._number in answers:
                    return answers[self._number]
        finally:
            if wanted.named_by_uid is not None:
                waited = self._waited.get(wanted.named_by_uid, 0.0)
                self._waited[wanted.named_by_uid] = waited + self._monotonic() - began

    def _deadline(self, named_by_uid: int | None, now: float) -> float:
        usual = max(self._wait_until, now + _GRACE_SECONDS)
        if named_by_uid is None:
            return usual
        left = _WAIT_PER_USER_SECONDS - self._waited.get(named_by_uid, 0.0)
        return min(usual, now + max(left, _USER_GRACE_SECONDS))

    def _receive_answers(self, deadline: float) -> dict[int, Inspection]:
        """Return answers to pending probes, by number."""
        if self._process is None:
            raise WorkerError("there is no path probe process")
        answers: dict[int, Inspection] = {}
        for frame in self._process.receive(deadline - self._monotonic()):
            if frame.name != INSPECT:
                raise WorkerError("the path probe sent what it was not asked for")
            reply = decode(_REPLY, frame.body)
            if self._pending.pop(reply.number, None) is not None:
                answers[reply.number] = reply.inspection
        return answers

    def _drop_process(self, error: WorkerError) -> None:
        """Forget the process and its pending probes."""
        self._end()
        self._pending.clear()
        if not self._closed and self._changes.changed("path_probe", str(error)):
            log.warn("path probe failed", error=str(error))
