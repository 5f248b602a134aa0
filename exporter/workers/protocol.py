"""What the agent and a worker say to each other: frames of JSON, each of a known shape and length.

The agent trusts no worker. A frame is decoded straight into frozen structs, whose limits are part
of their types; anything else ends the worker. No path ever comes from a worker.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from exporter.errors import WorkerError
from exporter.evidence.openers import KnownOpeners
from exporter.pruner.models import (
    HomePrunePlan,
    PruneAction,
    PruneMemory,
    PruneOutcome,
    PruneReport,
    Target,
)
from exporter.reaper.models import (
    HomeFacts,
    JudgedSession,
    Judgement,
    LeakCount,
    ReaperRules,
    UnknownCount,
    VerdictCount,
)
from exporter.reaper.orders import ReapOrder, Report
from exporter.reaper.plan import HomePlan, ReapAction
from exporter.runs.models import ActionState, Run, Skipped
from exporter.runs.summary import RunReport
from exporter.scan.home import ScanOptions
from exporter.snapshot import (
    Bytes,
    Count,
    Look,
    OpenSession,
    SessionId,
    SessionUsage,
    Snapshot,
    Text,
    Word,
)
from exporter.workers.frames import (
    FRAME_BYTES_MAX,
    LENGTH,
    InspectReply,
    InspectRequest,
    Ready,
    encode,
    receive_frame,
    send_frame,
)

PAGE_ITEMS: Final = 100
"""So few that a page fits into a frame whatever names clients have given their sessions."""
_WATCHED_BYTES_MAX: Final = 700_000
"""In base64 it still fits into a frame."""
_Item = TypeVar("_Item")


class LookRequest(Struct, frozen=True, tag="look"):
    home: str
    owner: int


class ReadRequest(ScanOptions, frozen=True, tag="read"):
    """Read a home and judge its sessions, by limits and evidence that come from the agent."""

    every_session: bool
    """Send the open sessions even where there are so many that it is done rarely."""
    facts: HomeFacts = HomeFacts()
    rules: ReaperRules = ReaperRules()
    undone_seconds: float = 0.0
    """For how long a session that an undo opened is left alone."""
    watched: bytes = b""
    """To a new worker: what an earlier one watched."""


class ExplainRequest(Struct, frozen=True, tag="explain"):
    """Why is this session judged as it is? Of the home's last reading."""

    home: str
    session_id: str


class PlanReapRequest(Struct, frozen=True, tag="plan_reap"):
    """What would a reap do now? Of the home's last reading."""

    order: ReapOrder


class ReapRequest(Struct, frozen=True, tag="reap"):
    """Do it: of what the last reading found dead, as much as the order wants."""

    order: ReapOrder


class UndoRequest(Struct, frozen=True, tag="undo"):
    home: str
    owner: int
    run: str
    openers: KnownOpeners
    lock_budget_seconds: float


class HistoryRequest(Struct, frozen=True, tag="history"):
    home: str
    owner: int
    run: str = ""
    """The actions of this run; empty: the runs."""


class PlanPruneRequest(Struct, frozen=True, tag="plan_prune"):
    """What would a prune do now? Of the home's last reading."""

    home: str
    order: msgspec.Raw
    """A `PlanOrder`. Its words are learnt only by a worker that is asked."""


class PruneRequest(Struct, frozen=True, tag="prune"):
    """Execute a plan."""

    home: str
    order: msgspec.Raw
    """A `PruneOrder`."""


class PurgeRequest(Struct, frozen=True, tag="purge"):
    """Empty the trash of a run, or all of it."""

    home: str
    owner: int
    run: str | None
    openers: KnownOpeners


class SettleRequest(Struct, frozen=True, tag="settle"):
    """Find out what runs that were killed had done, and finish what was half done."""

    home: str
    owner: int
    openers: KnownOpeners


class HealRequest(Struct, frozen=True, tag="heal"):
    """Give sessions that were born again the past that a prune took."""

    home: str
    owner: int
    openers: KnownOpeners
    lock_budget_seconds: float


class UpkeepRequest(Struct, frozen=True, tag="upkeep"):
    """VACUUM and `git gc`, where nobody is."""

    home: str
    order: msgspec.Raw
    """An `UpkeepOrder`."""


Errand = (
    PlanReapRequest
    | ReapRequest
    | UndoRequest
    | HistoryRequest
    | PlanPruneRequest
    | PruneRequest
    | PurgeRequest
    | SettleRequest
    | HealRequest
    | UpkeepRequest
)
"""What is asked of a worker besides reading a home; see `exporter.workers.errands`."""
Request = InspectRequest | LookRequest | ReadRequest | ExplainRequest | Errand


class UsagePage(Struct, frozen=True, tag="usage"):
    items: Annotated[list[SessionUsage], Meta(max_length=PAGE_ITEMS)]


class SessionsPage(Struct, frozen=True, tag="sessions"):
    items: Annotated[list[JudgedSession], Meta(max_length=PAGE_ITEMS)]
    first: bool
    """The first page of a new list; the pages before it are of an older one."""


class LookReply(Struct, frozen=True, tag="look"):
    look: Look


class ReadReply(Struct, frozen=True, tag="read"):
    """Ends the answer to a read."""

    snapshot: Snapshot
    verdicts: Annotated[list[VerdictCount], Meta(max_length=256)] = []
    leaks: Annotated[list[LeakCount], Meta(max_length=256)] = []
    runs: RunReport = RunReport()
    unknown: Annotated[list[UnknownCount], Meta(max_length=16)] = []
    watched: Annotated[bytes, Meta(max_length=_WATCHED_BYTES_MAX)] | None = None
    """What is to be given to the next worker of this home; None if it has not changed."""
    reborn: bool = False
    """A session that a prune deleted seems to be there again: it is time to heal."""


class ExplainReply(Struct, frozen=True, tag="explain"):
    """An open session with its whole judgement; None if it is not open in this home."""

    session: OpenSession | None
    judgement: Judgement | None


class ReapActionsPage(Struct, frozen=True, tag="reap_actions"):
    items: Annotated[list[ReapAction], Meta(max_length=PAGE_ITEMS)]


class PlanReapReply(Struct, frozen=True, tag="plan_reap"):
    """Ends the answer to a plan; its actions came in pages."""

    plan: HomePlan


class OutcomePage(Struct, frozen=True, tag="outcome"):
    """Targets that a run has dealt with."""

    done: Annotated[list[SessionId], Meta(max_length=PAGE_ITEMS)] = []
    skipped: Annotated[list[Skipped], Meta(max_length=PAGE_ITEMS)] = []


class ReapReply(Struct, frozen=True, tag="reap"):
    """Ends the answer to a reap; what became of its targets came in pages."""

    report: Report


class UndoReply(Struct, frozen=True, tag="undo"):
    """Ends the answer to an undo; what became of its targets came in pages."""

    why: Text = ""
    is_known: bool = True
    """False if what was given back could not be noted or seen."""


class SettleReply(Struct, frozen=True, tag="settle"):
    """What became of runs that were killed."""

    settled: Annotated[list[Word], Meta(max_length=PAGE_ITEMS)] = []
    left: Annotated[list[Skipped], Meta(max_length=PAGE_ITEMS)] = []
    """Runs of which it cannot be told yet, and why."""


class PruneActionsPage(Struct, frozen=True, tag="prune_actions"):
    items: Annotated[list[PruneAction], Meta(max_length=PAGE_ITEMS)]


class PlanPruneReply(Struct, frozen=True, tag="plan_prune"):
    """Ends the answer to a plan; its actions came in pages."""

    plan: HomePrunePlan
    report: PruneReport
    memory: PruneMemory
    pressure: msgspec.Raw
    """A `Pressure`."""


class Progress(Struct, frozen=True, tag="progress"):
    """So many of so many actions are settled."""

    settled: Count
    total: Count


class PruneReply(Struct, frozen=True, tag="prune"):
    """Ends the answer to a prune or a purge; what became of its targets came in pages."""

    outcome: PruneOutcome


class HealReply(Struct, frozen=True, tag="heal"):
    healed: Count = 0
    left: Count = 0
    why: Text = ""
    """Of those that were left, why the first was."""


class UpkeepDone(Struct, frozen=True):
    """One piece of upkeep."""

    work: Word
    why: Text
    """Why it was not done; empty if it was."""
    before_bytes: Count
    after_bytes: Count


class UpkeepReply(Struct, frozen=True, tag="upkeep"):
    done: Annotated[list[UpkeepDone], Meta(max_length=8)]


class HistoryPage(Struct, frozen=True, tag="runs"):
    items: Annotated[list[Run], Meta(max_length=PAGE_ITEMS)]


class NotedAction(Struct, frozen=True):
    """One action of a run, as its journal knows it."""

    action: Word
    policy: Word
    target: Target
    reason: Text
    bytes: Bytes
    state: ActionState
    why: Text


class ActionsPage(Struct, frozen=True, tag="actions"):
    items: Annotated[list[NotedAction], Meta(max_length=PAGE_ITEMS)]


class HistoryReply(Struct, frozen=True, tag="history"):
    """Ends the answer to a history."""


class Refusal(Struct, frozen=True, tag="refusal"):
    """Nothing was done, or no more than was told: in one line for the operator."""

    why: Text
    busy: bool = False
    """Another run is under way; it may be asked again later."""


class Failure(Struct, frozen=True, tag="failure"):
    """The worker could not answer: a fault of ours, named by type and place, never by content."""

    detail: Annotated[str, Meta(max_length=300)]


Reply = (
    Ready
    | InspectReply
    | UsagePage
    | SessionsPage
    | LookReply
    | ReadReply
    | ExplainReply
    | ReapActionsPage
    | PlanReapReply
    | OutcomePage
    | ReapReply
    | UndoReply
    | SettleReply
    | PruneActionsPage
    | PlanPruneReply
    | Progress
    | PruneReply
    | HealReply
    | UpkeepReply
    | HistoryPage
    | ActionsPage
    | HistoryReply
    | Refusal
    | Failure
)

_request_decoder: Final = msgspec.json.Decoder(Request)
_reply_decoder: Final = msgspec.json.Decoder(Reply)


def send(stream: socket.socket, message: Request | Reply) -> None:
    body = encode(message)
    if len(body) > FRAME_BYTES_MAX and isinstance(message, Reply):
        raise WorkerError(f"a frame of {len(body)} bytes is longer than {FRAME_BYTES_MAX}")
    send_frame(stream, body)


def receive_request(stream: socket.socket) -> Request | None:
    """The next request, None when the agent is gone."""
    body = receive_frame(stream)
    return None if body is None else _request_decoder.decode(body)


def pages(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """A long list as it travels, a page at a time."""
    for start in range(0, len(items), PAGE_ITEMS):
        yield items[start : start + PAGE_ITEMS]


class ReplyStream:
    """Takes bytes from a worker as they come and gives out whole, valid replies."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Reply]:
        self._buffer += data
        replies: list[Reply] = []
        while len(self._buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer)
            if length > FRAME_BYTES_MAX:
                raise WorkerError(f"a worker sent a frame of {length} bytes; it is ended")
            end = LENGTH.size + length
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[LENGTH.size : end])
            del self._buffer[:end]
            try:
                replies.append(_reply_decoder.decode(body))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise WorkerError(f"a worker sent nonsense ({error}); it is ended") from error
        return replies
