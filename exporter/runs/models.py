"""The types that reap and prune share: plans, actions, runs and their results."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Final, Generic, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from exporter.config.prune import PolicyName, PolicyNameOrNone, ThresholdName
from exporter.snapshot import Bytes, Count, SessionId, Text, Timestamp, Word
from exporter.text import cut

TARGET_MAX: Final = 512
WHY_MAX: Final = 300
EVIDENCE_MAX: Final = 4
"""Pieces of evidence that a plan and a list of sessions have of each session."""
STOPPED: Final = "the run was stopped before its turn came"
"""The reason of actions that a stopped run had not reached."""

TargetName = Annotated[str, Meta(max_length=4096)]
"""What an action is taken on: the id of a session or run, a project's hash, a path in the home."""

UNREADABLE: Final = "unreadable"
"""The kind of an action whose entry in the journal is damaged, so that it is not known."""

END_SESSION: Final = "end_session"
REOPEN_SESSION: Final = "reopen_session"
MOVE_END: Final = "move_end"
"""Move `ended_at` to the last activity; the session stays ended by us."""
CORRECT_END: Final = "correct_end"
"""Write the end that Hermes would have written. It counts as ours, so that it is still healed."""
ENDS: Final = (END_SESSION, MOVE_END, CORRECT_END)
"""The actions after which a session has an end that we wrote."""

FINISH_ROW: Final = "finish_row"
"""Delete the row of an emptied session, when no process can need it any more."""


PURGE_TRASH: Final = "purge_trash"
"""The trash of an earlier run is emptied; the target is that run."""
DELETE_SESSION: Final = "delete_session"
TRIMMED: Final = "the run is older than 90 days, and nothing is left to undo"
"""Why the journal does not list an action any more; see `exporter.runs.trim`."""


class RunKind(StrEnum):
    """What a run is for."""

    REAP = "reap"
    HEAL = "heal"
    PRUNE = "prune"
    UNDO = "undo"


class RunOutcome(StrEnum):
    DONE = "done"
    """Everything that still was as planned was done."""
    PARTIAL = "partial"
    """Something went wrong after some of it."""
    FAILED = "failed"
    """Something went wrong before anything was done."""
    INTERRUPTED = "interrupted"
    """A person stopped it: what was done is known and can be undone, the rest was left alone."""
    UNKNOWN = "unknown"
    """What was done could not be recorded or seen. It is never in a journal: the next run finds
    out what happened."""


NOTED_OUTCOMES: Final = (
    RunOutcome.DONE,
    RunOutcome.PARTIAL,
    RunOutcome.FAILED,
    RunOutcome.INTERRUPTED,
)
"""The outcomes of finished runs."""


class ActionState(StrEnum):
    INTENDED = "intended"
    DONE = "done"
    SKIPPED = "skipped"
    UNDONE = "undone"
    """It was done, and a later run took it back."""


class Frees(StrEnum):
    """When the bytes of an action come free."""

    NOW = "now"
    AT_PURGE = "at_purge"
    """It waits in the trash on the same filesystem."""
    AFTER_UPKEEP = "after_upkeep"
    """Only VACUUM or `git gc` gives it back."""


class Filter(Struct, frozen=True):
    """What a person limits a plan to. An empty one limits nothing."""

    policies: tuple[PolicyName, ...] = ()
    sources: tuple[str, ...] = ()
    older_than_seconds: float | None = None
    """Replaces the age in the settings of a policy."""
    unproven: bool = False
    """Include files without a row whose deletion was not seen: they may be last copies."""
    include_undone: bool = False
    """Include what an undo restored within `keep.undone`."""


class Proof(StrEnum):
    """How a session was found dead."""

    PROVEN = "proven"
    """The kernel shows that no process can be running it."""
    PRESUMED = "presumed"
    """It was watched idle for a long time, beside a process that may run it."""


class SpeaksFor(StrEnum):
    """The verdict that a piece of evidence supports."""

    LIVE = "live"
    HELD = "held"
    DEAD = "dead"
    EXEMPT = "exempt"
    """Sessions of its source are never reaped."""
    BLIND = "blind"
    """It only shows that something cannot be seen."""


class Evidence(Struct, frozen=True):
    """One piece of evidence; the detail names processes by PID and kind, never by arguments."""

    kind: Word
    says: SpeaksFor
    detail: Text


Expected = TypeVar("Expected")
"""What the target of an action must still be like when the action is taken."""


class Action(Struct, Generic[Expected], frozen=True):
    """One thing to do, why, and what must still hold at that moment."""

    kind: Word
    """What is done, as journals and JSON name it: `END_SESSION`, or one of `pruner.models.Act`."""
    target: TargetName
    reason: Text
    expected: Expected
    """Compared at the moment the action is taken."""
    policy: PolicyNameOrNone = ""
    """Of a prune."""
    bytes: Bytes = 0
    """Allocated bytes of files, estimated payload of sessions."""
    frees: Frees = Frees.AT_PURGE
    lowers: tuple[ThresholdName, ...] = ()
    """The thresholds that it lowers: by its bytes, or by 1 if the threshold counts items."""
    group: int = 0
    """Actions of one group other than 0 are taken together or not at all: a lineage of sessions,
    a parent with its delegates. They follow each other in the plan, children first."""
    evidence: Annotated[tuple[Evidence, ...], Meta(max_length=EVIDENCE_MAX)] = ()
    """Why a session was found dead."""
    proof: Proof = Proof.PROVEN
    since: float = 0.0
    """Of a prune: the moment from which the age of the target counts; 0 if it is not known."""


class ProtectedCount(Struct, frozen=True):
    """How many items a rule protects from a policy that would take them."""

    rule: Text
    items: Count


class Unreachable(Struct, frozen=True):
    """Bytes above the low watermark of a threshold that no policy may free."""

    threshold: Text
    reason: Text
    bytes: Bytes


class Capped(Struct, frozen=True):
    """What automatic runs leave for later, because `prune.caps` limits 24 hours."""

    items: Count
    bytes: Bytes
    caps: Annotated[list[Word], Meta(max_length=3)] = []
    """The keys of `prune.caps` that are reached."""
    more_at: Timestamp | None = None
    """When more may go."""


class NotYet(Struct, frozen=True):
    """Items that a policy will take when they are old enough."""

    policy: PolicyName
    items: Count
    first_at: Timestamp
    """When the first of them is old enough."""
    last_at: Timestamp


class Plan(Struct, Generic[Expected], frozen=True):
    """What would be done to one home, in this order."""

    home: str
    hash: str = ""
    """Of actions, targets and their states; not of the time of the plan."""
    created_at: Timestamp = 0.0
    actions: tuple[Action[Expected], ...] = ()
    blocked: Annotated[str, Meta(max_length=64)] = ""
    """Why it does nothing, as a label value; empty if it may act."""
    why: Text = ""
    """The same in a sentence."""
    warnings: tuple[Text, ...] = ()
    """What a person should know before saying yes, e.g. that it is more than a day's caps."""
    capped: Capped | None = None
    """Of an automatic prune: what is left for later."""
    needed_bytes: Bytes = 0
    """Room on disk for all of it, and for what is left because there is not enough."""
    rows_trash_bytes: Bytes = 0
    """The most that the home can grow, by compressed rows of sessions in the trash."""
    not_yet: tuple[NotYet, ...] = ()
    """What is too young for each policy, and when it will be old enough."""
    protected: tuple[ProtectedCount, ...] = ()
    unreachable: tuple[Unreachable, ...] = ()
    deferred: Count = 0
    """How many dead sessions the limit per minute postpones."""


class Skipped(Struct, frozen=True):
    """A target that was left alone, and why. Both are cut to the length that messages allow."""

    target: SessionId
    why: Text

    def __post_init__(self) -> None:
        if len(self.target) > TARGET_MAX or len(self.why) > WHY_MAX:
            force_setattr(self, "target", cut(self.target, TARGET_MAX))
            force_setattr(self, "why", cut(self.why, WHY_MAX))


class Outcome(Struct, frozen=True):
    """What became of a reap, a prune, an undo or a purge in one home."""

    run: Word | None
    """Of an undo, the run that was undone. None if nothing was begun."""
    outcome: RunOutcome
    done: tuple[TargetName, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    why: Text = ""
    """What stopped it, if anything did; cut to the length that messages allow."""
    freed: dict[Frees, Bytes] = {}
    """Bytes of what was done, by when they come free. What came free now is net: as much as `du -s`
    of the home is smaller."""
    grown_bytes: Bytes = 0
    """By how much the home is larger after the run, if nothing came free now."""
    kept_bytes: Bytes = 0
    """Size of the deleted sessions in the trash."""
    rows_kept: Count = 0
    """Sessions of which only the row is left, for a process that may have them in memory."""
    notes: tuple[Skipped, ...] = ()
    """Targets that an undo restored, but not exactly as they were."""
    reopened: tuple[SessionId, ...] = ()
    """Sessions of earlier reaps that a process was running after all."""
    resumed: tuple[SessionId, ...] = ()
    """Sessions of earlier reaps that a client resumed later."""
    blocked: Word = ""
    """Why a reap ended nothing although there are dead sessions, as a label value."""
    deferred: Count = 0
    """Dead sessions that are left to the next reap."""
    longest_hold_seconds: float = 0.0
    """The longest time that the write lock of state.db was held without a break."""

    def __post_init__(self) -> None:
        if len(self.why) > WHY_MAX:
            force_setattr(self, "why", cut(self.why, WHY_MAX))

    @property
    def is_known(self) -> bool:
        """False if what was done could not be noted or seen."""
        return self.outcome is not RunOutcome.UNKNOWN


def outcome_of(*, went_wrong: bool, anything_done: bool) -> RunOutcome:
    """The outcome of a run of which everything is known."""
    if not went_wrong:
        return RunOutcome.DONE
    return RunOutcome.PARTIAL if anything_done else RunOutcome.FAILED


class Reversal(Struct, frozen=True):
    """The earlier action that an action takes back."""

    run: str
    number: int


class RecordedAction(Struct, frozen=True):
    """An action in the journal, which has it before it is taken."""

    action: Action[dict[str, Any]]
    after: dict[str, Any] = {}
    """What the action makes of its target, and what undoing it needs."""
    reverses: Reversal | None = None
    run: str = ""
    number: int = 0
    state: ActionState = ActionState.INTENDED
    why: str = ""
    settled_at: float | None = None


def numbered(run: str, actions: Iterable[RecordedAction]) -> list[RecordedAction]:
    """Return these as the recorded actions of a run that just began."""
    return [replace(each, run=run, number=number) for number, each in enumerate(actions)]


class ActionFailure(str):
    """Why an action failed. A plain string says why it was left alone: its target is no longer as
    planned, or is needed.
    """

    __slots__ = ()


class Settled(Struct, frozen=True):
    """What became of an action; the reason is cut to the length that the journal allows."""

    number: int
    state: ActionState
    why: str = ""
    failed: bool = False
    """True if it was skipped because it failed."""

    def __post_init__(self) -> None:
        if isinstance(self.why, ActionFailure):  # from here on a plain string, which can be sent
            force_setattr(self, "failed", True)
            force_setattr(self, "why", str(self.why))
        if len(self.why) > WHY_MAX:
            force_setattr(self, "why", cut(self.why, WHY_MAX))

    @classmethod
    def of(cls, action: RecordedAction, why: str) -> Settled:
        """Return the result of an action that was done, or skipped for a reason."""
        return cls(action.number, ActionState.SKIPPED if why else ActionState.DONE, why)


def skip(actions: Iterable[RecordedAction], why: str) -> list[Settled]:
    """Leave all of these alone, for one reason."""
    return [Settled(each.number, ActionState.SKIPPED, why) for each in actions]


class Run(Struct, frozen=True):
    """One run; `finished_at` and `outcome` are None while it is under way, or was killed."""

    id: str
    kind: RunKind
    plan: str
    """The hash of the plan that was executed; empty if there was none."""
    by_hand: bool
    started_at: float
    finished_at: float | None
    outcome: RunOutcome | None
    why: str
    undoable_until: float | None
    """None if it cannot be undone."""
    actions: int
    """Those that were done, whether or not they were undone since."""
    bytes: int
    undone: int = 0
    """How many of the actions were undone."""
    sole_action: str = ""
    """The kind that all of its actions have; empty if they differ, or there are none."""
    trimmed: int = 0
    """How many of its actions are not listed any more, because it is long past."""
    under_way: bool = False
    """Its process has the run lock. If a run is neither finished nor under way, it was killed."""

    @property
    def is_undone(self) -> bool:
        """True if there is nothing left that an undo could restore."""
        return self.finished_at is not None and self.undone == self.actions

    @property
    def is_purge(self) -> bool:
        """It emptied the trash and did nothing else."""
        return self.sole_action == PURGE_TRASH

    @property
    def label(self) -> str:
        """The name of the run for people."""
        if self.sole_action == FINISH_ROW:
            return "finish"
        return "purge" if self.is_purge else self.kind.value

    def row(self, home: str) -> dict[str, Any]:
        """Return the run as `history --json` prints it; a killed run is `interrupted`."""
        outcome = self.outcome or (None if self.under_way else RunOutcome.INTERRUPTED)
        return {
            "run": self.id,
            "kind": self.label,
            "home": home,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "outcome": outcome.value if outcome else None,
            "actions": self.actions,
            "bytes": self.bytes,
            "undoable_until": None if self.is_undone else self.undoable_until,
        }


class KeptRows(Struct, frozen=True):
    """Sessions that one run has emptied, and whose rows are still there."""

    run: str
    sessions: dict[str, int]
    """The number of the action that emptied each."""
    beside: Any = None
    """The processes that the rows wait for, as the run recorded them."""


class Reaps(Struct, frozen=True):
    """Sessions that automatic runs ended within a minute."""

    at: float
    """When the first of them was ended."""
    sessions: int


class Reopening(Struct, frozen=True):
    """A reaped session that was opened again: by a person, or because a process was using it."""

    at: float
    wrong_proof: bool
    """True if the session was proven dead, and yet a process was using it."""
