"""Verdicts, the evidence behind them, and the settings that they depend on."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from exporter.runs.models import EVIDENCE_MAX, Evidence, Proof
from exporter.snapshot import Count, OpenSession, Text, Timestamp, TurnState, Word


class Verdict(StrEnum):
    """What is known of an open session."""

    LIVE = "live"
    HELD = "held"
    """Not running, but a chat or a handoff will return to it."""
    DEAD = "dead"
    EXEMPT = "exempt"
    """Its source is never reaped."""
    UNKNOWN = "unknown"
    """It could not be determined."""


class UnknownReason(StrEnum):
    """Why there is no verdict."""

    SERVER = "server"
    CHAT = "chat"
    UNKNOWN_PROGRAM = "unknown_program"
    STOPPED = "stopped"
    BLIND = "blind"
    ROUTING = "routing"


class Conclusion(NamedTuple):
    """A verdict with its proof if it is dead, and its reason if it is unknown."""

    verdict: Verdict
    proof: Proof | None = None
    reason: UnknownReason | None = None


class Rule(Struct, frozen=True):
    """One condition of being dead, and whether it holds."""

    rule: Word
    holds: bool
    why: Text


class Judgement(Struct, frozen=True):
    """A verdict with everything that led to it, strongest evidence first."""

    verdict: Verdict
    evidence: Annotated[tuple[Evidence, ...], Meta(max_length=32)]
    rules: Annotated[tuple[Rule, ...], Meta(max_length=16)]


class JudgedSession(Struct, frozen=True):
    """An open session and its verdict, with only the strongest evidence."""

    session: OpenSession
    verdict: Verdict
    evidence: Annotated[tuple[Evidence, ...], Meta(max_length=EVIDENCE_MAX)]
    proof: Proof | None = None
    """Only of a dead session."""


class ReaperRules(Struct, frozen=True):
    """The settings that verdicts depend on."""

    sources: tuple[str, ...] = ("cli", "tui", "cron", "subagent", "curator")
    min_idle_seconds: float = 600.0
    heartbeat_timeout_seconds: float = 90.0
    confirmations: int = 2
    presume_server_seconds: float | None = 7200.0
    """How long a session must be watched idle beside a server; None: never presumed dead."""
    presume_chat_seconds: float | None = 259200.0
    """The same beside a chat, or beside a program of unknown kind."""
    presume_by_clock: bool = False
    """A person asked for it: idle time by the wall clock counts as if it had been watched."""
    interval_seconds: float = 60.0
    """How often homes with very many open sessions are judged; others at every scan."""
    end_reason: str = "reaped"
    """What a reap writes: a session that has it, and is in no journal, was reaped as well."""


def may_be_reaped(session: OpenSession, sources: Collection[str]) -> bool:
    """True if `reaper.sources` has the session's source, or the subagent that it really is."""
    return session.source in sources or (session.is_subagent and "subagent" in sources)


class VerdictCount(Struct, frozen=True):
    source: Word
    verdict: Verdict
    sessions: Count


class UnknownCount(Struct, frozen=True):
    """Sessions with the verdict unknown, by reason, and what they wait for."""

    reason: UnknownReason
    sessions: Count
    overdue: Count = 0
    """Those that have been idle, by Hermes's timestamps, for longer than the table of processes
    asks.
    """
    process: int | None = None
    """PID of the oldest process that they wait for."""
    processes: Count = 0
    """How many processes they wait for."""
    process_began_at: Timestamp | None = None
    dead_at: Timestamp | None = None
    """When the last of them is dead if nothing changes; None: not by time alone."""


class LeakCount(Struct, frozen=True):
    """Dead sessions, by whether their last message left a turn open."""

    source: Word
    cause: TurnState
    sessions: Count
