"""The requests to a worker and their replies: one table, `CALLS`.

A call has a name, the types of its request and reply, and a handler that is loaded when it is first
needed. The agent trusts no worker: a reply is decoded straight into frozen structs with limits in
their types. Anything else ends the worker. No path ever comes from a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from exporter.errors import WorkerError
from exporter.evidence.models import ProcessFacts
from exporter.evidence.openers import KnownOpeners
from exporter.pruner.requests import (
    PrunePlanRequest,
    PrunePlanResult,
    PruneRequest,
    UpkeepDone,
    UpkeepRequest,
)
from exporter.reaper.models import (
    JudgedSession,
    Judgement,
    LeakCount,
    ReaperRules,
    UnknownCount,
    VerdictCount,
)
from exporter.reaper.plan import ReapPlan, ReapPlanRequest, ReapRequest
from exporter.reaper.slow_start import SlowStart
from exporter.runs.models import ActionState, Outcome, Run, Skipped, TargetName
from exporter.runs.past_session import PastSession
from exporter.runs.summary import RunSummary
from exporter.scan.access import DeniedPart
from exporter.scan.options import ScanOptions
from exporter.snapshot import Bytes, Count, OpenSession, Probe, SessionUsage, Snapshot, Text, Word
from exporter.workers.frames import FRAME_BYTES_MAX, pack

PAGE_ITEMS: Final = 100
"""100 of the longest allowed ids fit into one frame."""
PLAN_BYTES_MAX: Final = 256 * 1024 * 1024
"""Limit of a reply that names every target: enough for half a million items to prune."""
_WATCHED_BYTES_MAX: Final = 700_000
"""Encoded in base64 it still fits into a frame."""
_KEPT_BYTES_MAX: Final = 16 * 1024 * 1024


# Reading a home


class ProbeRequest(Struct, frozen=True):
    """Probe a home without opening anything."""

    home: str
    owner: int


class Want(Struct, frozen=True):
    """The plans that a scan must also make, from what it read."""

    reap: ReapPlanRequest | None = None
    prune: PrunePlanRequest | None = None


class ScanRequest(ScanOptions, frozen=True):
    """Read a home and judge its sessions, with limits and evidence from the agent."""

    every_session: bool
    """Send the open sessions even if there are so many that they are usually sent rarely."""
    list_sessions: bool = True
    """False: send no open session at all; a command that only counts them needs none."""
    facts: ProcessFacts = ProcessFacts()
    rules: ReaperRules = ReaperRules()
    undone_seconds: float = 0.0
    """How long a session that an undo reopened is protected."""
    watched: bytes = b""
    """For a new worker: what an earlier one watched."""
    kept: bytes | None = None
    """What an earlier process read, for a scan that only shows figures; see `kept_readings`. None:
    read everything, and send nothing to keep.
    """
    want: Want = Want()


class UsagePage(Struct, frozen=True, tag="usage"):
    items: Annotated[list[SessionUsage], Meta(max_length=PAGE_ITEMS)]


class SessionsPage(Struct, frozen=True, tag="sessions"):
    items: Annotated[list[JudgedSession], Meta(max_length=PAGE_ITEMS)]
    first: bool
    """True for the first page of a new list; pages before it belong to an older list."""


class ScanReply(Struct, frozen=True, tag="scanned"):
    """What was read and judged. It comes before the plans, so that metrics do not wait for them."""

    snapshot: Snapshot
    verdicts: Annotated[list[VerdictCount], Meta(max_length=256)] = []
    leaks: Annotated[list[LeakCount], Meta(max_length=256)] = []
    runs: RunSummary = RunSummary()
    unknown: Annotated[list[UnknownCount], Meta(max_length=16)] = []
    watched: Annotated[bytes, Meta(max_length=_WATCHED_BYTES_MAX)] | None = None
    """What the next worker of this home must get; None if it has not changed."""
    reborn: bool = False
    """True if a session that a prune deleted seems to exist again and needs healing."""
    slow_start: SlowStart = SlowStart()


ScanPart = UsagePage | SessionsPage | ScanReply


class Plans(Struct, frozen=True):
    """The wanted plans. A plan that could not be made does not fail the scan."""

    reap: ReapPlan | None = None
    prune: PrunePlanResult | None = None
    problem: Text = ""
    """Why a wanted plan is missing."""
    kept: Annotated[bytes, Meta(max_length=_KEPT_BYTES_MAX)] | None = None
    """What the next process can start with, if the request asked for it."""


class ExplainRequest(Struct, frozen=True):
    """The question why a session got its verdict in the home's last reading."""

    home: str
    owner: int
    session_id: str


class ExplainReply(Struct, frozen=True):
    """An open session with its complete judgement, or what became of one that is not open."""

    session: OpenSession | None = None
    judgement: Judgement | None = None
    past: PastSession | None = None


# Acting on a home


class RunsRequest(Struct, frozen=True):
    home: str
    owner: int


class RunActionsRequest(Struct, frozen=True):
    home: str
    owner: int
    run: str


class ActionRow(Struct, frozen=True):
    """One action of a run, as the journal has it."""

    action: Word
    policy: Word
    target: TargetName
    reason: Text
    bytes: Bytes
    state: ActionState
    why: Text


class UndoRequest(Struct, frozen=True):
    home: str
    owner: int
    run: str
    openers: KnownOpeners
    lock_budget_seconds: float


class PurgeRequest(Struct, frozen=True):
    """Empty the trash of a run, or all of it."""

    home: str
    owner: int
    run: str | None
    openers: KnownOpeners


class RecoverRequest(Struct, frozen=True):
    """Find out what killed runs had done, and finish what was half done."""

    home: str
    owner: int
    openers: KnownOpeners
    reserve: bool = False
    """Also keep some space, in which a run can be noted on a full disk."""


class RecoverReply(Struct, frozen=True):
    """The result for runs that were killed."""

    settled: Annotated[list[Word], Meta(max_length=PAGE_ITEMS)] = []
    left: Annotated[list[Skipped], Meta(max_length=PAGE_ITEMS)] = []
    """Runs that could not be settled yet, and why."""


class HealRequest(Struct, frozen=True):
    """Restore the history that a prune took from sessions that exist again."""

    home: str
    owner: int
    openers: KnownOpeners
    lock_budget_seconds: float


class HealReply(Struct, frozen=True):
    healed: Count = 0
    left: Count = 0
    why: Text = ""
    """Why the first session that was not healed was skipped."""
    finished: Count = 0
    """Rows of emptied sessions that were no longer needed, and are gone."""


# Messages of every call, apart from its reply

PART: Final = "part"
DONE: Final = "done"
PROGRESS: Final = "progress"
REFUSED: Final = "refused"
FAILED: Final = "failed"
CANCEL: Final = "cancel"
"""From the agent, during a call that acts: stop at the next safe point, then reply as usual."""


class Progress(Struct, frozen=True):
    """How many actions of how many are finished."""

    settled: Count
    total: Count


class Refusal(Struct, frozen=True):
    """Nothing was done, or no more than was reported: one line for the operator."""

    why: Text
    busy: bool = False
    """Another run is in progress; the caller may try again later."""


class Failure(Struct, frozen=True):
    """The worker could not answer: a bug of ours, named by type and place, never by content."""

    detail: Text


# The table

AnyRequest = TypeVar("AnyRequest")
Part = TypeVar("Part")
Reply = TypeVar("Reply")


class Reporter(Protocol):
    """How a handler sends messages before its reply."""

    def part(self, part: object) -> None: ...

    def progress(self, settled: int, total: int) -> None: ...

    def cancelled(self) -> bool: ...


Handler = Callable[[Any, Any, Reporter], Any]
"""Called with what the worker keeps of the home, the request, and a teller."""


class Call(Generic[AnyRequest, Part, Reply]):
    """One kind of request: its type, the type of its reply, and its handler."""

    def __init__(
        self,
        name: str,
        request: type[AnyRequest],
        reply: Any,
        handler: str,
        *,
        seconds: float,
        parts: Any = None,
        reply_bytes_max: int = FRAME_BYTES_MAX,
        acts: bool = False,
    ) -> None:
        self.name = name
        self.request = request
        self.reply = reply
        self.parts = parts
        self.seconds = seconds
        """Time limit for the reply, or for the next progress message."""
        self.reply_bytes_max = reply_bytes_max
        self.acts = acts
        """True if it may change the home."""
        self._handler = handler

    def pack(self, request: AnyRequest) -> bytes:
        return pack(self.name, request)

    @cached_property
    def handler(self) -> Handler:
        """The handler, named as `module:function`; its module is loaded now."""
        module, _, function = self._handler.partition(":")
        return cast(Handler, getattr(import_module(module), function))

    def load(self) -> None:
        """Load the handler and all decoders; workers that are forked later share them.

        A worker decodes no reply, but the child that plans for it sends it most of one.
        """
        self.handler, self._request_decoder  # noqa: B018 - they are made when first read
        self._part_decoder, self._reply_decoder  # noqa: B018

    def decode_request(self, body: bytes) -> AnyRequest:
        """Decode a request, in a worker, which trusts the agent."""
        return self._request_decoder.decode(body)

    def decode_part(self, body: bytes) -> Part:
        return cast(Part, self._decode(self._part_decoder, body))

    def decode_reply(self, body: bytes) -> Reply:
        return cast(Reply, self._decode(self._reply_decoder, body))

    def _decode(self, decoder: msgspec.json.Decoder[Any] | None, body: bytes) -> Any:
        if decoder is None:
            raise WorkerError("a worker sent what it was not asked for; it is ended")
        return decode(decoder, body)

    @cached_property
    def _request_decoder(self) -> msgspec.json.Decoder[AnyRequest]:
        return msgspec.json.Decoder(self.request)

    @cached_property
    def _part_decoder(self) -> msgspec.json.Decoder[Any] | None:
        return msgspec.json.Decoder(self.parts) if self.parts is not None else None

    @cached_property
    def _reply_decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.reply)


Decoded = TypeVar("Decoded")


def decode(decoder: msgspec.json.Decoder[Decoded], body: bytes) -> Decoded:
    """Decode a worker's message; raise WorkerError unless it has the agreed shape."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WorkerError(f"a worker sent nonsense ({error}); it is ended") from error


_HOME: Final = "exporter.workers.home"
_PROBE_SECONDS: Final = 10.0
_PLAN_SECONDS: Final = 300.0
"""Time for the plans of a scan, after it has delivered its reading."""
_LIST_SECONDS: Final = 60.0
_ACT_SECONDS: Final = 900.0
"""A run works in steps and lets Hermes write between them."""

PROBE: Final[Call[ProbeRequest, None, Probe]] = Call(
    "probe", ProbeRequest, Probe, f"{_HOME}:probe", seconds=_PROBE_SECONDS
)
SCAN: Final[Call[ScanRequest, ScanPart, Plans]] = Call(
    "scan",
    ScanRequest,
    Plans,
    f"{_HOME}:scan",
    seconds=_PLAN_SECONDS,
    parts=ScanPart,
    reply_bytes_max=PLAN_BYTES_MAX,
)
ACCESS: Final[Call[ProbeRequest, None, list[DeniedPart]]] = Call(
    "access", ProbeRequest, list[DeniedPart], f"{_HOME}:access", seconds=_PROBE_SECONDS
)
EXPLAIN: Final[Call[ExplainRequest, None, ExplainReply]] = Call(
    "explain", ExplainRequest, ExplainReply, f"{_HOME}:explain", seconds=_PROBE_SECONDS
)


def _acting(
    name: str, request: type[AnyRequest], reply: Any, seconds: float, *, acts: bool = True
) -> Any:
    """Return a call whose handler is the function of its name in `acting`."""
    handler = f"exporter.workers.acting:{name}"
    most = PLAN_BYTES_MAX
    return Call(name, request, reply, handler, seconds=seconds, reply_bytes_max=most, acts=acts)


LIST_RUNS: Final[Call[RunsRequest, None, list[Run]]] = _acting(
    "list_runs", RunsRequest, list[Run], _LIST_SECONDS, acts=False
)
SHOW_RUN: Final[Call[RunActionsRequest, None, list[ActionRow]]] = _acting(
    "show_run", RunActionsRequest, list[ActionRow], _LIST_SECONDS, acts=False
)
REAP: Final[Call[ReapRequest, None, Outcome]] = _acting("reap", ReapRequest, Outcome, _ACT_SECONDS)
PRUNE: Final[Call[PruneRequest, None, Outcome]] = _acting(
    "prune", PruneRequest, Outcome, _ACT_SECONDS
)
UNDO: Final[Call[UndoRequest, None, Outcome]] = _acting("undo", UndoRequest, Outcome, _ACT_SECONDS)
PURGE: Final[Call[PurgeRequest, None, Outcome]] = _acting(
    "purge", PurgeRequest, Outcome, _ACT_SECONDS
)
SETTLE: Final[Call[RecoverRequest, None, RecoverReply]] = _acting(
    "settle", RecoverRequest, RecoverReply, _ACT_SECONDS
)
HEAL: Final[Call[HealRequest, None, HealReply]] = _acting(
    "heal", HealRequest, HealReply, _ACT_SECONDS
)
UPKEEP: Final[Call[UpkeepRequest, None, list[UpkeepDone]]] = _acting(
    "upkeep", UpkeepRequest, list[UpkeepDone], _ACT_SECONDS
)
CALLS: Final[dict[str, Call[Any, Any, Any]]] = {
    call.name: call
    for call in (
        *(PROBE, SCAN, ACCESS, EXPLAIN, LIST_RUNS, SHOW_RUN),
        *(REAP, PRUNE, UNDO, PURGE, SETTLE, HEAL, UPKEEP),
    )
}
"""Every request that a worker answers."""
