"""Who is on what, and what must hold after each step.

It is written from docs/safety.md and the settings, not from the code: it knows the truth, because
the test makes it happen, and compares it with what databases, files, trash and journal say.

- A session is in use while a living process has it on screen, in memory or in a turn.
- Every message, transcript and checkpoint carries a token of its own. A token must be in the
  database, in a file or in the trash, until a person purges it or its time in the trash is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

HOUR = 3600.0
DAY = 24 * HOUR
OUR_REASON = "reaped"
NOTHING_RUNS_IN = frozenset({"maintenance"})
SERVERS = frozenset({"gateway", "cron"})
REAPABLE = frozenset({"cli", "tui", "cron", "subagent", "curator"})


class BrokenPromiseError(AssertionError):
    """A promise was broken."""


class Time(Protocol):
    """The clocks of the stage; `true` is never set."""

    @property
    def wall(self) -> float: ...

    @property
    def monotonic(self) -> float: ...

    @property
    def true(self) -> float: ...

    @property
    def boots(self) -> int: ...


@dataclass
class Process:
    """A process of Hermes, or another program with the database open."""

    pid: int
    start_ticks: int
    kind: str
    home: str
    on: str | None = None
    """The session that it has on screen or in memory."""
    has_database: bool = True
    stopped: bool = False
    written: int = 0
    named: str | None = None
    may_resume: bool = False
    has_nothing: bool = False
    """It took up a session without messages: Hermes refuses to compress or branch it."""
    since: float = 0.0
    """True time of its start."""


@dataclass
class Session:
    id: str
    home: str
    source: str
    parent: str | None
    tokens: list[str] = field(default_factory=list)
    """Of its messages, in their order."""
    used_true: float = 0.0
    """When it was last active itself; the rest counts its children too."""
    taken_up_empty: bool = False
    """A process took it up when it had no messages: then Hermes leaves the end as it is."""
    used_unseen: bool = False
    """Whether a process used it last that opens the database for each turn, or after its reap."""
    was_left: bool = False
    """Whether the product has acted since, while no process had the database open."""
    active_true: float = 0.0
    active_wall: float = 0.0
    active_monotonic: float = 0.0
    active_boot: int = 0
    stopped_before: dict[bool, float] = field(default_factory=dict)
    """How long each agent had seen processes stopped in this home when it was last active."""
    reaped_true: float | None = None
    presumed_by_clock: bool = False
    restored_true: float | None = None
    perhaps_restored: bool = False
    """An undo has opened it again, unless an older journal says nothing of that."""
    delegated_by: int | None = None
    """The process that runs it, on its parent session; another one there does not."""
    due_scans: int = 0
    watched_since: float | None = None
    """Monotonic time of the scan that first saw it as it is now."""
    went_on_in: str | None = None
    """The child that goes on from it, by a compression or a branch."""
    ended_by_hermes: bool = False


@dataclass
class SeenStopped:
    """For how long an agent has seen a process stopped."""

    seconds: float = 0.0
    since: float | None = None


@dataclass(frozen=True)
class Row:
    """A row of `sessions`, as the database has it."""

    ended_at: float | None
    end_reason: str | None
    archived: bool
    tokens: tuple[str, ...]
    times: tuple[float, ...] = ()
    """When it began, and when each message was written, by Hermes's clock."""
    source: str = ""
    unanswered: bool = False
    """Whether its newest message is a question."""


@dataclass(frozen=True)
class ActionRow:
    run: str
    action: str
    target: str
    state: str
    proof: str | None
    at: float | None = None
    """When it was settled."""


@dataclass(frozen=True)
class Observation:
    """All of a home that is not in a process."""

    rows: Mapping[str, Row]
    files: Mapping[str, frozenset[str]]
    """The tokens of each file of Hermes, by path below the home."""
    trash: Mapping[str, frozenset[str]]
    """The tokens of each file in the trash."""
    actions: Mapping[tuple[str, int], ActionRow]
    tripped: bool
    database: object
    """Changes with any byte of state.db or its WAL."""
    written_back: bytes = b""
    """The bytes that state.db has once its WAL is written back."""

    def in_database(self) -> set[str]:
        return {token for row in self.rows.values() for token in row.tokens}

    def in_files(self) -> set[str]:
        return {token for tokens in self.files.values() for token in tokens}

    def in_trash(self) -> set[str]:
        return {token for tokens in self.trash.values() for token in tokens}


@dataclass
class Rules:
    """The settings that the agents run with, in seconds."""

    min_idle: float = 600.0
    server: float = 2 * HOUR
    chat: float = 72 * HOUR
    confirmations: int = 2
    interval: float = 60.0
    keep: float = 72 * HOUR
    min_keep: float = HOUR
    slack: float = 1.0
    """How much the test's own look may be late or early."""


@dataclass
class Home:
    path: str
    version: str
    sessions: dict[str, Session] = field(default_factory=dict)
    file_tokens: dict[str, str] = field(default_factory=dict)
    """Tokens of transcripts and checkpoints, and where each was written."""
    held: dict[str, set[str]] = field(default_factory=dict)
    plugins: bool = False
    released: set[str] = field(default_factory=set)
    """Tokens that may be gone: purged by hand, in a damaged file, or rewritten by Hermes."""
    trashed_true: dict[str, float] = field(default_factory=dict)
    stopped: dict[bool, SeenStopped] = field(
        default_factory=lambda: {True: SeenStopped(), False: SeenStopped()}
    )
    """By agent, True for the one that must act. What is stopped and goes on between two scans of an
    agent was never stopped for that agent."""
    main_saw_stopped: bool = False
    """The agent that must act saw a stopped process at its last scan: until its next one it cannot
    tell when that process went on, even if the other agent has scanned in between."""
    journal_damaged: bool = False
    journal_garbled: bool = False
    healings_since_garbled: int = 0
    """A damaged journal is mended first; what was used meanwhile is healed by the third scan."""
    """Its bytes were changed; otherwise it was lost, or is older, and the trash tells the rest."""
    scanned_at: float = 0.0
    counted_at: float = -1e9
    """Monotonic time of the last scan that counts towards the time in which a session must end."""
    by_hand: bool = False
    """A person acts on it in this step."""
    purging: bool = False
    reaps: list[float] = field(default_factory=list)
    """True times of automatic reaps."""

    def session_of(self, token: str) -> Session | None:
        return next((each for each in self.sessions.values() if token in each.tokens), None)


class Model:
    """What is true of all homes."""

    def __init__(self, clock: Time, rules: Rules) -> None:
        self.clock = clock
        self.rules = rules
        self.homes: dict[str, Home] = {}
        self.processes: dict[int, Process] = {}
        self.clock_wrong_by = 0.0
        """The largest difference between two errors of the wall clock so far."""
        self.acting: bool | None = None
        """The agent that scans now, True for the one that must act; None: a command."""
        self.reaped = {"proven": 0, "presumed": 0}
        self.pruned = 0
        self.healed = 0

    # What happens

    def of(self, home: Home) -> list[Process]:
        """The processes that have the database open."""
        return [p for p in self.processes.values() if p.home == home.path and p.has_database]

    def on(self, home: Home, session_id: str) -> list[Process]:
        """The living processes with the database open that are on a session."""
        return [each for each in self.of(home) if each.on == session_id]

    def add(self, home: Home, session_id: str, source: str, parent: str | None = None) -> Session:
        made = home.sessions[session_id] = Session(session_id, home.path, source, parent)
        self.active(home, made)
        return made

    def active(self, home: Home, session: Session) -> None:
        session.used_true = self.clock.true
        session.was_left = False
        # A child that moves keeps its parent from counting as idle.
        parents = list(self._ancestors(home, session))
        for each in (session, *parents[:1]):
            each.active_true, each.active_wall = self.clock.true, self.clock.wall
            each.active_monotonic, each.active_boot = self.clock.monotonic, self.clock.boots
            each.stopped_before = {agent: self._stopped(home, agent) for agent in (True, False)}
        for each in (session, *parents):
            each.due_scans, each.watched_since = 0, None

    def _stopped(self, home: Home, agent: bool) -> float:
        seen = home.stopped[agent]
        under_way = 0.0 if seen.since is None else self.clock.monotonic - seen.since
        return seen.seconds + under_way

    def watched_idle(self, home: Home, session: Session) -> float:
        """For how long the agent that acts (for a command: any) can have watched it idle."""
        if session.active_boot != self.clock.boots:
            return self.clock.monotonic
        idle = self.clock.monotonic - session.active_monotonic
        agents = (True, False) if self.acting is None else (self.acting,)
        return idle - min(
            self._stopped(home, each) - session.stopped_before.get(each, 0.0) for each in agents
        )

    def needed_idle(self, home: Home, process: Process) -> float:
        """The table: how long a session must be idle beside this process."""
        if process.kind in NOTHING_RUNS_IN:
            return self.rules.min_idle
        if process.kind in SERVERS and not home.plugins:
            return self.rules.server
        return self.rules.chat

    def scanned(
        self, home: Home, before: Mapping[str, Row], rows: Mapping[str, Row], *, main: bool
    ) -> None:
        """An agent has scanned: it sees who is stopped now. `main`: the one that must act.

        A session that this scan opens again was ended when it was read: the next one sees it open.
        """
        if main and self.clock.monotonic - home.scanned_at > DAY:
            self._forget_newest(home)  # its worker may have been replaced in the meantime
        stopped_now = any(p.stopped for p in self.of(home))
        paused = home.main_saw_stopped or stopped_now
        for session in home.sessions.values() if main else ():
            seen = [each.get(session.id) for each in (before, rows)]
            if any(row is None or row.ended_at is not None for row in seen):
                session.watched_since = None  # one that is opened again is watched anew
            elif session.watched_since is None or paused:
                session.watched_since = self.clock.monotonic
        if main:
            home.scanned_at, home.main_saw_stopped = self.clock.monotonic, stopped_now
        stopped = any(p.stopped and p.kind not in NOTHING_RUNS_IN for p in self.of(home))
        seen_stopped = home.stopped[main]
        if stopped and seen_stopped.since is None:
            seen_stopped.since = self.clock.monotonic
        elif not stopped and seen_stopped.since is not None:
            seen_stopped.seconds += self.clock.monotonic - seen_stopped.since
            seen_stopped.since = None

    def agent_restarted(self) -> None:
        """What it has watched is kept about once a minute; the rest it watches again."""
        for home in self.homes.values():
            self._forget_newest(home)

    def _forget_newest(self, home: Home) -> None:
        for session in home.sessions.values():
            if home.scanned_at - (session.watched_since or home.scanned_at) < 125:
                session.watched_since = None

    def rebooted(self) -> None:
        self.processes.clear()
        for home in self.homes.values():
            home.stopped = {True: SeenStopped(), False: SeenStopped()}
            home.main_saw_stopped = False
            home.counted_at = -1e9
            for session in home.sessions.values():
                session.due_scans, session.watched_since = 0, None

    def rewritten(self, home: Home, seen: Observation) -> None:
        """An older database is there: what came after it may be gone, and is not remembered."""
        kept = seen.in_database() | seen.in_trash() | seen.in_files()
        for session in home.sessions.values():
            home.released |= {token for token in session.tokens if token not in kept}
            session.perhaps_restored |= session.restored_true is not None
            session.restored_true, session.went_on_in = None, None
            row = seen.rows.get(session.id)
            if row is None:
                continue
            is_ours = row.end_reason == OUR_REASON and row.ended_at is not None
            session.reaped_true = (session.reaped_true or self.clock.true) if is_ours else None
            noted = [a.at for a in seen.actions.values() if a.target == session.id and a.at]
            if session.reaped_true is not None and noted:
                # An older journal came with it, and has an older reap of the session as the last.
                since = self.clock.wall - max(noted)
                session.reaped_true = min(session.reaped_true, self.clock.true - since)
            session.due_scans, session.watched_since = 0, None
            back = max(0.0, session.active_wall - max(row.times))
            session.active_true -= back
            session.active_wall -= back
            session.used_true = min(session.used_true, session.active_true)

    def acted(self) -> None:
        """The product has acted, and seen who is there."""
        for home in self.homes.values():
            if all(p.kind in NOTHING_RUNS_IN for p in self.of(home)):
                for session in home.sessions.values():
                    session.was_left = True

    # What must hold

    def check(self, home: Home, before: Observation, after: Observation, *, ours: bool) -> None:
        """Compare a home before and after a step; `ours`: the product acted in it."""
        self._check_ends(home, before, after)
        self._check_tokens(home, before, after)
        self._check_order(home, after)
        if ours:
            self._check_explained(home, before, after)
        # What such a process does is put down to one that was there at the reap and still is.
        unseen = any(
            session_id in home.sessions and home.sessions[session_id].used_unseen
            for session_id, row in before.rows.items()
            if row.end_reason == OUR_REASON
        )
        if after.tripped and not before.tripped and not home.journal_damaged and not unseen:
            raise BrokenPromiseError(
                "automatic reaping stopped: the product itself found a wrong proof"
            )

    def _check_ends(self, home: Home, before: Observation, after: Observation) -> None:
        for session_id, row in after.rows.items():
            was = before.rows.get(session_id)
            session = home.sessions.get(session_id)
            if session is None:
                raise BrokenPromiseError(
                    f"{session_id} is in the database, and no process has made it"
                )
            if row.end_reason != OUR_REASON or row.ended_at is None:
                if was is not None and was.end_reason == OUR_REASON and row.ended_at is None:
                    self.healed += 1
                session.reaped_true = None
            elif was is None or was.ended_at is None:
                if session.reaped_true is None and was is not None:
                    self._check_reap(home, session, before, after)
                session.reaped_true = session.reaped_true or self.clock.true

    def _check_reap(
        self, home: Home, session: Session, before: Observation, after: Observation
    ) -> None:
        ends = {
            key: each
            for key, each in after.actions.items()
            if each.target == session.id
            and each.action == "end_session"
            and each.state in ("intended", "done")
        }
        # An earlier end may have a later time, if the clock was set back.
        new = [each for key, each in ends.items() if before.actions.get(key) != each]
        done = new or list(ends.values())
        proofs = {each.proof for each in done}
        # Ids of runs of one second are in no order. The end that stands was not undone or skipped;
        # a run that was killed has perhaps not noted it.
        done.sort(key=lambda each: (("intended", "done").index(each.state), each.at or 0.0))
        proof = done[-1].proof if done else None
        if proof is None:
            raise BrokenPromiseError(f"{session.id} was ended, and the journal has no proof of it")
        self.reaped[proof] += 1
        if not home.by_hand:
            home.reaps.append(self.clock.true)
        what = f"{session.id} was ended as {proof} ({proofs})"
        if home.held.get(session.id):
            raise BrokenPromiseError(f"{what}, and it is held: {home.held[session.id]}")
        # Without its journal it is not known what an undo gave back.
        if session.restored_true is not None and not home.journal_damaged:
            since = self.clock.true - session.restored_true
            if since + self.clock_wrong_by + self.rules.slack < 30 * DAY:
                raise BrokenPromiseError(f"{what} {since:.0f} s after an undo gave it back")
        if session.source not in REAPABLE:
            raise BrokenPromiseError(f"{what}, and its source is {session.source}")
        stopped = [p.pid for p in self.of(home) if p.stopped and p.kind not in NOTHING_RUNS_IN]
        users = self.on(home, session.id)
        if session.parent is not None:
            by = session.delegated_by
            users += [each for each in self.on(home, session.parent) if each.pid == by]
        # A person counts by its own times: what a child did that has ended since is not asked.
        own_idle = self.clock.wall - max(after.rows[session.id].times)
        if proof == "proven":
            if users:
                raise BrokenPromiseError(f"{what}, and {users} is on it")
        else:
            if stopped:
                raise BrokenPromiseError(f"{what} beside stopped processes {stopped}")
            needed = min(self.rules.server, self.rules.chat)
            needed = max([needed, *(self.needed_idle(home, each) for each in users)])
            idle = self.watched_idle(home, session)
            if session.presumed_by_clock:
                idle = max(idle, own_idle)
            if idle + self.rules.slack < needed:
                raise BrokenPromiseError(
                    f"{what} after {idle:.0f} s of {needed:.0f}; {users} is on it"
                )
        # A child that has ended says nothing of its parent: the process on both has left it.
        open_children = [
            each
            for each in home.sessions.values()
            if each.parent == session.id
            if each.id in after.rows and after.rows[each.id].ended_at is None
        ]
        idle_true = self.clock.true - max(s.used_true for s in (session, *open_children))
        if session.presumed_by_clock:
            idle_true = max(idle_true, own_idle)
        if idle_true + self.clock_wrong_by + self.rules.slack < self.rules.min_idle:
            raise BrokenPromiseError(f"{what} after {idle_true:.0f} s")

    def _check_tokens(self, home: Home, before: Observation, after: Observation) -> None:
        here = after.in_database() | after.in_files()
        trash = after.in_trash()
        was = before.in_database()
        for session in home.sessions.values():
            pruned = [t for t in session.tokens if t in was and t not in here and t in trash]
            if pruned:
                self._check_prune(home, session, before)
            for token in session.tokens:
                self._check_token(home, token, session, here, trash)
        for token in home.file_tokens:
            self._check_token(home, token, None, here, trash)

    def _check_token(
        self, home: Home, token: str, session: Session | None, here: set[str], trash: set[str]
    ) -> None:
        if token in here:
            home.trashed_true.pop(token, None)
            return
        if token in trash:
            home.trashed_true.setdefault(token, self.clock.true)
            return
        if token in home.released:
            return
        where = f"{token} of {session.id if session else home.file_tokens[token]}"
        since = home.trashed_true.get(token)
        if since is None:
            raise BrokenPromiseError(f"{where} is lost: neither in the home nor in the trash")
        if home.purging:
            home.released.add(token)
            return
        kept = self.clock.true - since
        if kept + self.clock_wrong_by + self.rules.slack < self.rules.keep:
            raise BrokenPromiseError(f"{where} is lost: its trash was purged after {kept:.0f} s")
        for each in self.on(home, session.id) if session is not None else ():
            if each.since < since and self.needed_idle(home, each) == self.rules.chat:
                raise BrokenPromiseError(
                    f"{where} is lost: its trash was purged, and {each} has it in memory"
                )
        home.released.add(token)

    def _check_prune(self, home: Home, session: Session, before: Observation) -> None:
        self.pruned += 1
        what = f"{session.id} was pruned"
        row = before.rows.get(session.id)
        if row is not None and row.ended_at is None:
            raise BrokenPromiseError(f"{what}, and it was open")
        if home.held.get(session.id):
            raise BrokenPromiseError(f"{what}, and it is held: {home.held[session.id]}")
        idle = self.watched_idle(home, session)
        age = self.clock.true - session.active_true
        for each in self.on(home, session.id):
            needed = self.needed_idle(home, each)
            longest = max(idle, age) + self.clock_wrong_by + self.rules.slack
            if longest < needed:
                raise BrokenPromiseError(f"{what} after {longest:.0f} s, and {each} is on it")
        least = DAY if not session.tokens else 7 * DAY
        # What its children do keeps it from being reaped, not from being pruned. Policies use
        # Hermes's timestamps: a clock that was set before this boot is not noticed.
        own_age = self.clock.true - session.used_true
        if row is not None:
            own_age = max(own_age, self.clock.wall - max(row.times))
        if own_age + self.clock_wrong_by + self.rules.slack < least:
            raise BrokenPromiseError(f"{what} after {own_age:.0f} s")
        if session.reaped_true is not None:
            since = self.clock.true - session.reaped_true
            if since + self.clock_wrong_by + self.rules.slack < self.rules.keep:
                raise BrokenPromiseError(f"{what} {since:.0f} s after it was reaped")
        # Without its journal it is not known what an undo gave back.
        if session.restored_true is not None and not home.journal_damaged:
            since = self.clock.true - session.restored_true
            if since + self.clock_wrong_by + self.rules.slack < 30 * DAY:
                raise BrokenPromiseError(f"{what} {since:.0f} s after an undo gave it back")

    def _check_order(self, home: Home, after: Observation) -> None:
        for session_id, row in after.rows.items():
            session = home.sessions[session_id]
            if len(set(row.tokens)) != len(row.tokens):
                raise BrokenPromiseError(f"{session_id} has messages twice: {row.tokens}")
            place = {token: number for number, token in enumerate(session.tokens)}
            order = [place.get(token, -1) for token in row.tokens]
            if order != sorted(order) or -1 in order:
                raise BrokenPromiseError(f"{session_id} has its messages in another order: {order}")

    def _check_explained(self, home: Home, before: Observation, after: Observation) -> None:
        """The journal explains every difference, down to the bytes of the database."""
        # A run that is still open explains it: what it left in the text index is put right.
        is_open = any(each.state == "intended" for each in before.actions.values())
        # Where no process is, what a killed run left in the WAL is written back by the next one.
        alone = not self.of(home) and before.written_back == after.written_back
        changed = before.database != after.database and not alone
        if changed and before.actions == after.actions and not is_open:
            raise BrokenPromiseError("state.db or its WAL changed, and no run says so")
        noted = [
            each
            for key, each in after.actions.items()
            if before.actions.get(key) != each and each.state != "skipped"
        ]
        targets = {each.target for each in noted}
        text = " ".join(targets)
        for session_id in before.rows.keys() | after.rows.keys():
            if before.rows.get(session_id) != after.rows.get(session_id) and (
                session_id not in targets
            ):
                was, now = before.rows.get(session_id), after.rows.get(session_id)
                raise BrokenPromiseError(f"{session_id} changed, and no run says so: {was} → {now}")
        for path in before.files.keys() ^ after.files.keys():
            name = path.rpartition("/")[2]
            if name not in text and not any(each in path for each in targets):
                raise BrokenPromiseError(f"{path} came or went, and no run says so: {targets}")

    def check_healed(self, home: Home, after: Observation, since: float) -> None:
        """After a scan of an agent: whatever was used after we ended it is put right.

        Without its journal a session counts as ended when the agent first saw it, `since` then.
        """
        holders = [p for p in self.of(home) if p.kind not in NOTHING_RUNS_IN]
        trash = after.in_trash()
        home.healings_since_garbled += home.journal_garbled
        for session in home.sessions.values():
            row = after.rows.get(session.id)
            if row is None:
                continue
            used = session.reaped_true is not None and session.used_true > session.reaped_true
            went_on = session.went_on_in is not None
            if home.journal_damaged and session.used_true <= since:
                continue
            mending = home.journal_garbled and home.healings_since_garbled <= 3
            if used and holders and not went_on and row.end_reason == OUR_REASON and not mending:
                moved = session.was_left and (row.ended_at or 0.0) >= max(row.times)
                if not moved:
                    raise BrokenPromiseError(
                        f"{session.id} was used after its reap, and stays ended"
                    )
            if home.journal_damaged:
                continue  # what is in the trash is not known
            missing = [
                token
                for token in session.tokens
                if token not in row.tokens and token in trash and token not in home.released
            ]
            newest = session.tokens[-1] if session.tokens else None
            if missing and newest in row.tokens:
                raise BrokenPromiseError(f"{session.id} goes on without its past: {missing}")

    def check_due(self, home: Home, after: Observation, *, enforcing: bool) -> None:
        """After a scan: a session that nothing runs is ended within its time of the table."""
        if self.clock.monotonic - home.counted_at < self.rules.interval + 1:
            return
        home.counted_at = self.clock.monotonic
        holders = self.of(home)
        recent = [t for t in home.reaps if self.clock.true - t < 61 * 60]
        quiet = enforcing and not after.tripped and len(recent) < 8
        for session in home.sessions.values():
            row = after.rows.get(session.id)
            if row is None or row.ended_at is not None:
                session.due_scans = 0
                continue
            # A row that Hermes makes again for a session that was pruned has no source.
            reapable = row.source in REAPABLE
            if not (quiet and reapable and self._is_due(home, session, row, holders)):
                session.due_scans = 0
                continue
            session.due_scans += 1
            if session.due_scans > self.rules.confirmations + 4:
                raise BrokenPromiseError(
                    f"{session.id} is dead by the table, and was not ended: {session}"
                )

    def _is_due(self, home: Home, session: Session, row: Row, holders: Sequence[Process]) -> bool:
        restored = session.restored_true is not None or session.perhaps_restored
        if session.source not in REAPABLE or restored:
            return False
        lineage = [session, *self._relatives(home, session)]
        if any(home.held.get(each.id) or self.on(home, each.id) for each in lineage):
            return False
        if any(each.named in {s.id for s in lineage} or each.stopped for each in holders):
            return False
        needed = max(
            (self.needed_idle(home, each) for each in holders), default=self.rules.min_idle
        )
        margin = 2 * self.rules.interval
        # A time that is ahead, of a message that came before the clock was set back, protects it.
        idle_wall = self.clock.wall - max(session.active_wall, *row.times)
        now = self.clock.monotonic
        idle = min(now - (now if s.watched_since is None else s.watched_since) for s in lineage)
        return idle > needed + margin and idle_wall > self.rules.min_idle + margin

    def _ancestors(self, home: Home, session: Session) -> Iterable[Session]:
        above, seen = session.parent, {session.id}
        while above is not None and above in home.sessions and above not in seen:
            seen.add(above)
            yield home.sessions[above]
            above = home.sessions[above].parent

    def _relatives(self, home: Home, session: Session) -> Iterable[Session]:
        """Its ancestors and descendants."""
        below = {session.id}
        for _ in range(10):
            more = {s.id for s in home.sessions.values() if s.parent in below} - below
            if not more:
                break
            below |= more
        found = self._ancestors(home, session)
        return [*found, *(home.sessions[each] for each in below - {session.id})]
