"""Looking at paths that may never answer.

Before a home is adopted somebody must look at it, with the agent's own privileges, and a path on a
dead mount hangs whoever looks. The scout is a process that gives each question a thread of its own.
A question that is not answered in time stays open and is not asked again; its answer, whenever it
comes, tells that the path is back.

Paths are other people's words: each user has so many open questions and so much of a round's
patience, so that nobody's can keep the scout from looking at another's home.
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
from exporter.workers.process import END_WAIT_SECONDS, ChildProcess, own_program
from exporter.workers.protocol import decode

WAIT_SECONDS: Final = 5.0
"""How long a round waits for paths that do not answer, all of them together."""
_WAIT_PER_USER_SECONDS: Final = 2.0
_GRACE_SECONDS: Final = 0.25
"""What a path is given once the patience of a round is used up."""
_GRACE_AFTER_USER_LIMIT_SECONDS: Final = 0.05
"""What a user's path is given once his own share of it is used up."""
_PENDING_MAX: Final = 1024
_PENDING_PER_USER: Final = 16
_ATTEMPTS: Final = 2

_REPLY: Final = msgspec.json.Decoder(InspectReply)

log = logs.get("scout")


class _PendingProbe(NamedTuple):
    path: str
    named_by_uid: int | None
    as_uid: int | None


class PathProber:
    """The agent's end of the scout."""

    def __init__(
        self,
        start: Callable[[], ChildProcess] = lambda: ChildProcess(
            own_program("exporter.workers.path_probe")
        ),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start = start
        self._monotonic = monotonic
        self._process: ChildProcess | None = None
        self._open: dict[int, _PendingProbe] = {}
        self._waited: dict[int, float] = {}
        self._number = 0
        self._patience_until = 0.0
        self._closed = False
        self._changes = logs.StateChange()

    def begin_scan(self) -> None:
        """Take in the answers that came late, and be patient anew."""
        self._patience_until = self._monotonic() + WAIT_SECONDS
        self._waited.clear()
        try:
            while self._process is not None:
                self._hear(self._monotonic())
        except TimeoutError:
            pass
        except WorkerError as error:
            self._lose(error)

    def hangs(self, path: str) -> bool:
        """Whether a question about this path is still open."""
        return any(question.path == path for question in self._open.values())

    def inspect(
        self, path: str, named_by_uid: int | None = None, *, with_rights_of_user: bool = False
    ) -> Inspection | None:
        """What is at this path; None if it does not answer.

        `asker` is the user whose word the path is, None for the operator's. With `as_asker` it is
        looked at with no more rights than his.
        """
        if self._closed or self.hangs(path):
            return None
        if not self._may_ask(named_by_uid):
            return Inspection(exists=True, unreadable="too many other paths do not answer")
        question = _PendingProbe(path, named_by_uid, named_by_uid if with_rights_of_user else None)
        for _ in range(_ATTEMPTS):
            try:
                return self._ask(question)
            except TimeoutError:
                return None
            except WorkerError as error:
                self._lose(error)
        return None

    def _may_ask(self, named_by_uid: int | None) -> bool:
        if named_by_uid is None:
            return True  # the operator names few, and nobody else can
        his = sum(question.named_by_uid == named_by_uid for question in self._open.values())
        return his < _PENDING_PER_USER and len(self._open) < _PENDING_MAX

    def close(self) -> None:
        """For good; a question that another thread waits for is answered with None."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()
            process.is_gone(END_WAIT_SECONDS)

    def _ask(self, question: _PendingProbe) -> Inspection:
        if self._process is None:
            self._process = self._start()
            self._process.wait_ready()
            self._patience_until = self._monotonic() + WAIT_SECONDS
        began = self._monotonic()
        self._number += 1
        self._open[self._number] = question
        self._process.send(INSPECT, InspectRequest(self._number, question.path, question.as_uid))
        deadline = self._deadline(question.named_by_uid, began)
        try:
            while True:
                answers = self._hear(deadline)
                if self._number in answers:
                    return answers[self._number]
        finally:
            if question.named_by_uid is not None:
                waited = self._waited.get(question.named_by_uid, 0.0)
                self._waited[question.named_by_uid] = waited + self._monotonic() - began

    def _deadline(self, named_by_uid: int | None, now: float) -> float:
        usual = max(self._patience_until, now + _GRACE_SECONDS)
        if named_by_uid is None:
            return usual
        left = _WAIT_PER_USER_SECONDS - self._waited.get(named_by_uid, 0.0)
        return min(usual, now + max(left, _GRACE_AFTER_USER_LIMIT_SECONDS))

    def _hear(self, deadline: float) -> dict[int, Inspection]:
        """Answers to open questions, by number."""
        if self._process is None:
            raise WorkerError("there is no scout")
        answers: dict[int, Inspection] = {}
        for frame in self._process.receive(deadline - self._monotonic()):
            if frame.name != INSPECT:
                raise WorkerError("the scout sent what it was not asked for")
            reply = decode(_REPLY, frame.body)
            if self._open.pop(reply.number, None) is not None:
                answers[reply.number] = reply.inspection
        return answers

    def _lose(self, error: WorkerError) -> None:
        """Without the process its questions are open no more."""
        self._end()
        self._open.clear()
        if not self._closed and self._changes.changed("scout", str(error)):
            log.warn("scout failed", error=str(error))
