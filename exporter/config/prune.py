"""The settings of the pruner: thresholds, policies, what is kept, and where the rest waits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from exporter.config.mode import MODE, WHEN, Mode, When
from exporter.config.table import Leaf, list_of, nested, nested_with, per_name, setting, settings
from exporter.config.units import (
    COUNT,
    DURATION,
    PERCENT,
    SIZE,
    SWITCH,
    WORD,
    Unit,
    at_most,
)


@settings
class Caps:
    items: int = setting(COUNT, "5000", "maximum number of items")
    bytes: int = setting(SIZE, "10GiB", "maximum size")
    share: float = setting(PERCENT, "50%", "maximum share of a store")


@dataclasses.dataclass(frozen=True, slots=True)
class Threshold:
    """High and low watermark: in bytes, as a ratio or as a count, depending on the threshold."""

    high: float
    low: float
    for_seconds: float | None = None
    """How long `high` must stay crossed before a run starts; None: at once."""


def _threshold(
    unit: Unit[float] | Unit[int], high: str, low: str, about: str, grace: str | None = None
) -> Threshold:
    leaves = {
        "high": Leaf(unit, high, "a run starts above this"),
        "low": Leaf(unit, low, "and stops at this"),
        "for_seconds": Leaf(DURATION, grace, "how long it must stay above `high` first"),
    }
    rule = f"low must be below high, e.g. {{high: {high}, low: {low}}}"
    return nested_with(
        Threshold,
        about,
        leaves,
        check=lambda threshold: "" if threshold.low < threshold.high else rule,
        checked=("high", "low"),
    )


@settings
class Thresholds:
    RETIRED: ClassVar = {"state_db": "write 'state_db_payload:' with the same values"}

    transcripts: Threshold = _threshold(
        SIZE, "2GiB", "1.5GiB", "transcripts and request dumps of sessions"
    )
    checkpoints: Threshold = _threshold(SIZE, "10GiB", "7GiB", "checkpoints of both layouts")
    state_db_payload: Threshold = _threshold(
        SIZE, "2GiB", "1.5GiB", "estimated payload of state.db; its file shrinks only by VACUUM"
    )
    disk_used: Threshold = _threshold(
        PERCENT, "90%", "85%", "use of the filesystem that holds the home", grace="5m"
    )
    empty_sessions: Threshold = _threshold(COUNT, "1000", "100", "ended sessions without messages")


class ThresholdName(StrEnum):
    """The keys of `Thresholds`."""

    TRANSCRIPTS = "transcripts"
    CHECKPOINTS = "checkpoints"
    STATE_DB_PAYLOAD = "state_db_payload"
    DISK_USED = "disk_used"
    EMPTY_SESSIONS = "empty_sessions"


@dataclasses.dataclass(frozen=True, slots=True)
class PolicySettings:
    """What may go, once it is old enough."""

    older_than_seconds: float
    max_messages: int | None = None
    """Only for trivial_sessions: sessions with more messages are not trivial."""
    off: bool = False
    """It takes nothing, neither automatically nor by hand."""


def _age(text: str) -> float:
    if text.lower() in ("off", "false", "never", "none", "0"):
        raise ValueError("to switch a policy off, write `off` in place of its keys")
    return DURATION.parse(text)


_AGE = Unit(DURATION.name, _age)
_OLDER_THAN = "age by the newest of its timestamps"
_MAX_MESSAGES = "sessions with more messages than this are not trivial"


def _policy(older_than: str, about: str, max_messages: str | None = None) -> PolicySettings:
    leaves = {"older_than_seconds": Leaf(_AGE, older_than, _OLDER_THAN)}
    if max_messages is not None:
        leaves["max_messages"] = Leaf(COUNT, max_messages, _MAX_MESSAGES)
    return nested_with(PolicySettings, about, leaves, can_be_off=True)


@settings
class Policies:
    """In order of what is safest to lose; the order in a file changes nothing.

    A new policy is one line here and one file, see CONTRIBUTING.md.
    """

    request_dumps: PolicySettings = _policy("7d", "request dumps left by failed calls")
    orphan_files: PolicySettings = _policy(
        "1d", "transcripts of sessions that were seen to be deleted"
    )
    orphan_checkpoints: PolicySettings = _policy(
        "1d", "checkpoints of folders that were seen here and are gone"
    )
    stale_checkpoints: PolicySettings = _policy("14d", "checkpoints that no chat has added to")
    empty_sessions: PolicySettings = _policy("24h", "ended sessions without messages")
    trivial_sessions: PolicySettings = _policy(
        "7d", "ended sessions with few messages", max_messages="5"
    )
    old_sessions: PolicySettings = _policy("90d", "all other ended sessions")

    def named(self, name: str) -> PolicySettings:
        found: PolicySettings = getattr(self, name)
        return found


EXPIRED_TRASH: Final = "expired_trash"
"""The policy whose settings are `prune.trash`."""
POLICY_NAMES: Final = (EXPIRED_TRASH, *(field.name for field in dataclasses.fields(Policies)))
"""Every policy has a file of its name in `exporter/pruner/decide/policies/`."""
PolicyName = Annotated[str, Meta(pattern=rf"\A(?:{'|'.join(POLICY_NAMES)})\Z")]
"""Data from another process or a file must name a policy that exists."""
PolicyNameOrNone = Annotated[str, Meta(pattern=rf"\A(?:{'|'.join(POLICY_NAMES)})?\Z")]
"""The same, or empty."""


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyOverride:
    """What one source changes of a policy; None leaves it as it is."""

    older_than_seconds: float | None = None
    max_messages: int | None = None
    off: bool | None = None


def _override(*, max_messages: bool = False) -> PolicyOverride:
    leaves = {"older_than_seconds": Leaf(_AGE, None, _OLDER_THAN)}
    if max_messages:
        leaves["max_messages"] = Leaf(COUNT, None, _MAX_MESSAGES)
    return nested_with(PolicyOverride, "as under policies", leaves, can_be_off=True)


@settings
class SourcePolicies:
    """The policies that can differ by source: those of sessions."""

    empty_sessions: PolicyOverride = _override()
    trivial_sessions: PolicyOverride = _override(max_messages=True)
    old_sessions: PolicyOverride = _override()


@settings
class Keep:
    sources: tuple[str, ...] = list_of(WORD, (), "sessions of these sources")
    titled: bool = setting(SWITCH, "false", "sessions with a title (Hermes titles nearly all)")
    archived: bool = setting(SWITCH, "true", "archived sessions")
    newest: int = setting(COUNT, "20", "the newest sessions of each home")
    undone_seconds: float = setting(
        DURATION,
        "30d",
        "what an undo gave back, for this long; `--include-undone` takes it by hand",
    )


@settings
class Trash:
    keep_seconds: float = setting(DURATION, "72h", "how long a run can be undone")
    min_keep_seconds: float = setting(
        DURATION,
        "1h",
        "under disk pressure, or above max_bytes, trash is emptied when it is older than this",
    )
    max_bytes: int = setting(SIZE, "5GiB", "above this, the oldest trash of a home is emptied")

    RETIRED: ClassVar = {
        "early_purge": "write 'min_keep: 1h', how old trash must be to be emptied under disk "
        "pressure"
    }


@settings
class Upkeep:
    vacuum: bool = setting(SWITCH, "false", "VACUUM of state.db when no process has it open")
    gc: bool = setting(SWITCH, "false", "git gc of checkpoint stores when no process uses them")


@settings
class Prune:
    mode: Mode = setting(
        MODE, "observe", "observe: plan and export, touch nothing; enforce: act on the plan"
    )
    when: tuple[When, ...] = list_of(
        WHEN,
        ("pressure",),
        "pressure: when a threshold is crossed; age: also what is past its policy, once a day "
        "between 03:00 and 05:00 local time",
    )
    interval_seconds: float = setting(DURATION, "5m", "time between two checks of the thresholds")
    cooldown_seconds: float = setting(DURATION, "15m", "least time between two runs of a home")
    plan_ttl_seconds: float = setting(DURATION, "10m", "how long a printed plan can be executed")
    caps: Caps = nested(
        Caps, "what automatic runs may take from a home in 24 hours; the rest follows the next day"
    )
    emergency: float = setting(
        PERCENT,
        "97%",
        "this use of the filesystem is an emergency: trash from before it is emptied at once",
    )
    thresholds: Thresholds = nested(
        Thresholds, "crossing `high` starts a run, which stops at `low`", noun="threshold"
    )
    policies: Policies = nested(
        Policies,
        "what may go and when, in order of what is safest to lose; `NAME: off` switches one off",
        noun="policy",
    )
    sources: Mapping[str, SourcePolicies] = per_name(
        WORD,
        SourcePolicies,
        "policies that differ for sessions of one source; none by default",
        noun="policy",
    )
    keep: Keep = nested(Keep, "what no policy may take")
    trash: Trash = nested(Trash, "where pruned data waits")
    upkeep: Upkeep = nested(Upkeep, "work in quiet windows only")
    lock_budget_seconds: float = setting(
        at_most(DURATION, "250ms"), "50ms", "target for one write transaction on a live state.db"
    )

    def is_off(self, name: str) -> bool:
        """True if a policy takes nothing, of any source."""
        found: PolicySettings | None = getattr(self.policies, name, None)
        if found is None or not found.off:
            return False
        return all(
            getattr(each, name, PolicyOverride()).off is not False for each in self.sources.values()
        )

    def policies_for(self, source: str) -> Policies:
        """Return the policies for sessions of one source, with its overrides."""
        overrides = self.sources.get(source)
        if overrides is None:
            return self.policies
        changed = {
            field.name: _applied(self.policies.named(field.name), getattr(overrides, field.name))
            for field in dataclasses.fields(SourcePolicies)
        }
        return dataclasses.replace(self.policies, **changed)


def _applied(policy: PolicySettings, override: PolicyOverride) -> PolicySettings:
    return PolicySettings(
        override.older_than_seconds or policy.older_than_seconds,
        override.max_messages or policy.max_messages,
        policy.off if override.off is None else override.off,
    )
