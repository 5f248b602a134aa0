"""What a worker keeps of one home: its readings, its verdicts, and the basis of its plans."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import structs

from exporter.errors import DatabaseError, HomeError
from exporter.evidence.liveness import BootTime, LivingOwners, read_boot_time
from exporter.evidence.models import ProcessFacts
from exporter.hermes.continuations import LastRows
from exporter.hermes.database import database_path, file_state
from exporter.pruner.models import PruneMemory
from exporter.pruner.requests import PrunePlanRequest, PrunePlanResult
from exporter.reaper.models import LeakCount, UnknownCount, Verdict, VerdictCount
from exporter.reaper.plan import JudgedHome, ReapPlan, ReapPlanRequest, plan_reap
from exporter.reaper.slow_start import SlowStart, slow_start
from exporter.reaper.verdict_history import VerdictHistory
from exporter.runs.models import END_SESSION
from exporter.runs.past_session import PastSession, past_session
from exporter.runs.summary import KnownRuns, RunReader
from exporter.scan.access import DeniedPart, denied_parts
from exporter.scan.home import HomeScanner
from exporter.scan.probe import STATE, probe_home, trouble_of
from exporter.scan.session_table import SessionTable, with_holds
from exporter.snapshot import Hold, OpenSession, Probe, SessionSummary, Snapshot, Trouble
from exporter.workers.privilege import release_memory, trim_heap
from exporter.workers.protocol import (
    PAGE_ITEMS,
    ExplainReply,
    ExplainRequest,
    Plans,
    ProbeRequest,
    Reporter,
    ScanPart,
    ScanReply,
    ScanRequest,
    SessionsPage,
    UsagePage,
    Want,
)
from exporter.workers.used_again import UsedAgain

if TYPE_CHECKING:  # only homes that need a plan load it
    from exporter.pruner.gather.inventory_reader import InventoryReader

Item = TypeVar("Item")
_ALWAYS_SEND_SESSIONS: Final = 500
_SEND_SESSIONS_SECONDS: Final = 60.0
_ALWAYS_JUDGE_SESSIONS: Final = 500
_SEND_WATCH_SECONDS: Final = 60.0
_MEMORY_BYTES_MAX: Final = 700_000


class WorkerHome:
    """Reads, judges and plans for one home, scan after scan."""

    def __init__(
        self,
        home: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        moment: Callable[[], BootTime] = read_boot_time,
    ) -> None:
        self._home = home
        self._clock = clock
        self._monotonic = monotonic
        self._owners = LivingOwners()
        self._scanner = HomeScanner(
            home, clock=clock, monotonic=monotonic, owner_lives=self._owners
        )
        self._history = VerdictHistory(moment)
        self._open: dict[str, OpenSession] = {}
        """The open sessions, each with all its holds."""
        self._run_reader = RunReader(home)
        self._runs = KnownRuns()
        self._judged_at = float("-inf")
        self._judged_runs: KnownRuns | None = None
        self._sent_runs: KnownRuns | None = None
        self._sent_dead = -1
        self.used_again = UsedAgain()
        self._grown: set[str] = set()
        """Sessions that changed since the last verdicts."""
        self._judged_table: SessionTable | None = None
        self._watch_sent_at = float("-inf")
        self._open_seen: object = None
        self._undone_seconds = 0.0
        """For how long the last scan held what an undo gave back."""
        self._verdicts_are_new = False
        """True if the verdicts were made at the last reading, from what it read."""
        self._judged_passes = -1
        """The passes over the database when the last verdicts were made."""
        self._counted = (-1, -1, 0)
        self._verdicts: list[VerdictCount] = []
        self._leaks: list[LeakCount] = []
        self._unknown: list[UnknownCount] = []
        self._sessions_sent_at = float("-inf")
        self._sessions_sent = (-1, -1)
        self._reads = 0
        self._facts: ProcessFacts
        """The facts that the last verdicts were made from."""
        self._inventory: InventoryReader | None = None

    def probe(self, owner: int) -> Probe:
        """Return what can be known of the home while no connection is open."""
        return probe_home(self._home, owner)

    def read(self, request: ScanRequest) -> Iterator[ScanPart]:
        """Update everything that is known of the home; the snapshot comes last."""
        trouble, detail = Trouble.NONE, ""
        if not self._reads:
            self._history.watched.load(request.watched)
        if request.kept and request.walk_disk:
            self._use_kept(request.kept)
        self._owners.holders = request.facts.holders
        # Read the journal first: usage of a session is marked if its history is in the trash.
        self._runs = self._run_reader.read(request.owner)
        try:
            usage = self._scanner.update(request)
            marked = (self.used_again.mark_reborn(each, self._runs) for each in usage)
            yield from map(UsagePage, _in_pages(marked))
        except (DatabaseError, OSError) as error:
            trouble, detail = trouble_of(self._home, error)
        self._reads += 1
        moved = self._scanner.state.table.take_moved()
        self._grown |= moved or set()
        self.used_again.update(moved, self._scanner.state, self._runs, request.rules.end_reason)
        self._verdicts_are_new = False
        if trouble is Trouble.NONE:
            self._open = self._sessions_with_holds(request)
            self._judge(request)
            self._count_verdicts()
            yield from self._session_pages(request)
        snapshot = self._scanner.snapshot(request, trouble, detail)
        reborn = self.used_again.has_reborn(self._scanner.state, self._runs)
        if snapshot.sessions is None:
            yield ScanReply(snapshot, runs=self._runs.report, reborn=reborn)
            return
        self._count_verdicts()
        yield ScanReply(
            self._with_marathons(snapshot, snapshot.sessions, request.marathon_near_ratio),
            self._verdicts,
            self._leaks,
            structs.replace(self._runs.report, to_heal=self.used_again.to_heal),
            self._unknown,
            self._watched(),
            reborn,
            self._slow_start(),
        )

    def _use_kept(self, data: bytes) -> None:
        """Start with what an earlier process read, unless this one has read it already."""
        if self._scanner.disk is not None:
            return
        from exporter.workers import kept_readings  # loaded for commands alone

        kept = kept_readings.load(data, self._home, self._database())
        if kept is not None:
            self._scanner.use(kept.repos)
            self._inventory_reader().set_measurements(kept.measured)

    def kept(self) -> bytes | None:
        """Return what a later process can start with; None if there is nothing."""
        from exporter.workers import kept_readings

        repos = self._scanner.disk.kept() if self._scanner.disk is not None else None
        if repos is None:
            return None
        measured = self._inventory_reader().measurements()
        return kept_readings.dump(self._home, self._database(), repos, measured)

    def _database(self) -> tuple[int, int]:
        """Return device and inode of state.db."""
        found = file_state(database_path(self._home))
        return (found.identity.device, found.identity.inode) if found is not None else (0, 0)

    def _with_marathons(
        self, snapshot: Snapshot, sessions: SessionSummary, near_ratio: float
    ) -> Snapshot:
        """Count only long sessions that are live or held: nothing is sent in the others."""
        if not sessions.marathon_near + sessions.marathon_over:
            return snapshot
        limit = sessions.marathon_limit
        sizes = [
            each.messages
            for session_id, each in self._open.items()
            if each.messages >= near_ratio * limit
            and self._history.verdict(session_id) in (Verdict.LIVE, Verdict.HELD)
        ]
        over = sum(size > limit for size in sizes)
        counted = structs.replace(sessions, marathon_near=len(sizes) - over, marathon_over=over)
        return structs.replace(snapshot, sessions=counted)

    def _watched(self) -> bytes | None:
        """Return what the agent must keep for the next worker; None if nothing is due."""
        watched, now = self._history.watched, self._monotonic()
        is_due = watched.must_be_kept_now or now - self._watch_sent_at >= _SEND_WATCH_SECONDS
        if not watched.changed or not is_due:
            return None
        self._watch_sent_at = now
        return watched.dump()

    def _revision(self) -> tuple[int, int]:
        """Changes when a session or a verdict changes."""
        return self._scanner.state.passes, self._history.revision

    def _count_verdicts(self) -> None:
        """Count after sessions were judged, opened or ended; not for each message in one."""
        counted = (self._judged_passes, self._history.revision, hash(frozenset(self._open)))
        if self._counted != counted:
            self._counted = counted
            self._verdicts = self._history.counts(self._open)
            self._leaks = self._history.leaks(self._open)
            self._unknown = self._history.unknown(self._open)

    def _sessions_with_holds(self, request: ScanRequest) -> dict[str, OpenSession]:
        """Return the open sessions, each with its holds from other tables, files and undos."""
        self._undone_seconds = request.undone_seconds
        since = self._clock() - request.undone_seconds
        restored = frozenset(key for key, when in self._runs.restored.items() if when >= since)
        seen = (self._scanner.state.table, self._scanner.state.passes, restored)
        if seen == self._open_seen:
            return self._open
        self._open_seen = seen
        sessions = dict(self._scanner.state.table.open)
        holds: dict[str, list[Hold]] = {}
        if self._scanner.state.routing is not None:
            holds.update(self._scanner.state.routing.holds)
        for session_id in restored:
            holds[session_id] = [*holds.get(session_id, ()), Hold.RESTORED]
        for session_id in holds.keys() & sessions.keys():
            session = sessions[session_id]
            sessions[session_id] = structs.replace(
                session, holds=with_holds(session, holds[session_id])
            )
        return sessions

    def _judge(self, request: ScanRequest) -> None:
        """Judge the open sessions; if there are very many, not at every scan, but always after a
        run or undo.
        """
        since = self._monotonic() - self._judged_at
        is_new = since >= request.rules.interval_seconds or self._judged_runs is not self._runs
        if len(self._open) > _ALWAYS_JUDGE_SESSIONS and not is_new:
            return
        self._judged_at, self._judged_runs = self._monotonic(), self._runs
        self._judged_passes = self._scanner.state.passes
        blind = request.facts.blind
        if self._scanner.state.routing is None or not self._scanner.state.routing.readable:
            blind = (*blind, "routing")
        if not self._runs.readable:
            blind = (*blind, "run_journal")
        if self._scanner.state.table.open_left_out:
            blind = (*blind, "open_sessions")  # a child that is left out may be in use
        now = self._clock()
        signs = self._scanner.state.signs
        turns = frozenset(each for each, until in signs.turns.items() if until > now)
        self._facts = structs.replace(
            request.facts,
            blind=blind,
            plugins=self._scanner.has_plugins(),
            hermes_prunes_after_days=self._scanner.hermes_prunes_after_days(),
            backend_beat_at=signs.backend_beat_at,
            turns=turns,
            turns_elsewhere=not turns <= self._open.keys(),
        )
        begun_anew = self._judged_table is not self._scanner.state.table
        self._judged_table = self._scanner.state.table
        self._history.update(
            self._open,
            self._facts,
            request.rules,
            now,
            parents=self._scanner.state.parents,
            reopened=self._judged_table.reopened,
            grown=self._grown,
            begun_anew=begun_anew,
        )
        self._grown = set()
        self._verdicts_are_new = True

    @property
    def last_rows(self) -> LastRows:
        """The newest rows of the last scan."""
        return self._scanner.state.last_rows

    def explain(self, session_id: str, owner: int) -> ExplainReply:
        """Return everything that led to the verdict on an open session, or what became of it."""
        session = self._open.get(session_id)
        if session is None:
            return ExplainReply(past=self._past(session_id, owner))
        given_back_at = self._runs.restored.get(session_id)
        until = None if given_back_at is None else given_back_at + self._undone_seconds
        return ExplainReply(session, self._history.judgement(session, until))

    def _past(self, session_id: str, owner: int) -> PastSession | None:
        from exporter.runs.journal import journal_of  # only where it is asked for

        reason = self._scanner.state.table.end_reason(session_id)
        try:
            with journal_of(self._home, owner) as journal:
                return past_session(journal, session_id, reason)
        except HomeError:
            return past_session(None, session_id, reason)  # it is told that it cannot be read

    # The plans

    def plans(self, request: ScanRequest) -> Plans:
        """Return the wanted plans, made from the last reading."""
        want = request.want
        if want == Want():
            return Plans()
        try:
            self._refuse_old_verdicts()
            reap = self._plan_reap(want.reap, request.owner) if want.reap else None
            prune = self._plan_prune(request, want.prune) if want.prune else None
        except HomeError as error:
            return Plans(problem=str(error)[:300])
        except OSError as error:
            return Plans(problem=trouble_of(self._home, error)[1])
        return Plans(reap, prune)

    def _refuse_old_verdicts(self) -> None:
        if not self._verdicts_are_new:
            raise HomeError(f"{self._home} was not read and judged at the last look")

    def _plan_reap(self, wanted: ReapPlanRequest, owner: int) -> ReapPlan:
        now = self._clock()
        home = JudgedHome(
            home=self._home,
            judged=[
                self._history.judged(session)
                for session_id, session in self._open.items()
                if self._history.verdict(session_id) is Verdict.DEAD
            ],
            limits=wanted.limits,
            left_in_this_hour=self._slow_start().at(now, wanted.limits.max_per_minute).left,
            # A reap by hand has no limit per minute, so the journal is not read.
            reaped_in_last_minute=0
            if wanted.by_hand
            else _reaped_since(self._home, owner, now - 60),
            tripped=self._runs.report.tripped or "",
        )
        return plan_reap(home, now, sources=wanted.sources, by_hand=wanted.by_hand)

    def _slow_start(self) -> SlowStart:
        return slow_start(self._runs.automatic_reaps, self._runs.reopenings, self._clock())

    def _plan_prune(self, request: ScanRequest, wanted: PrunePlanRequest) -> PrunePlanResult:
        from exporter.pruner.planning import Seen, plan  # loaded for the first plan

        if self._scanner.disk is None:
            raise HomeError(f"{self._home} was not read at the last look")
        seen = Seen(
            home=self._home,
            owner=request.owner,
            facts=self._facts,
            rules=request.rules,
            disk=self._scanner.disk,
            walked=self._scanner.walked,
            before_open=self._scanner.guard(request, STATE),
        )
        planned = plan(wanted, self._inventory_reader(), seen)
        if not wanted.figures_only:
            release_memory()
        return structs.replace(planned, memory=_shortened(planned.memory))

    def _inventory_reader(self) -> InventoryReader:
        """Return the inventory reader that knows the home from earlier plans."""
        if self._inventory is None:
            from exporter.pruner.gather.inventory_reader import InventoryReader

            self._inventory = InventoryReader(
                self._home, clock=self._clock, monotonic=self._monotonic
            )
        return self._inventory

    def _session_pages(self, request: ScanRequest) -> Iterator[SessionsPage]:
        sessions = self._open
        moved = self._sessions_sent != self._revision()
        due = self._monotonic() - self._sessions_sent_at >= _SEND_SESSIONS_SECONDS
        dead = sum(each.sessions for each in self._verdicts if each.verdict is Verdict.DEAD)
        due = due or self._sent_runs is not self._runs or self._sent_dead != dead
        few = len(sessions) <= _ALWAYS_SEND_SESSIONS
        due_now = request.every_session or few or (moved and due)
        if not (due_now and request.list_sessions):
            return
        self._sessions_sent_at, self._sessions_sent = self._monotonic(), self._revision()
        self._sent_runs, self._sent_dead = self._runs, dead
        first = True
        for page in _in_pages(map(self._history.judged, sessions.values())):
            yield SessionsPage(page, first)
            first = False
        if first:  # an empty first page says that no session is open any more
            yield SessionsPage([], first)


def _in_pages(items: Iterator[Item]) -> Iterator[list[Item]]:
    while page := list(islice(items, PAGE_ITEMS)):
        yield page


def _shortened(memory: PruneMemory) -> PruneMemory:
    """Return as much of the memory as the agent can keep. A forgotten entry only waits again."""
    while len(msgspec.json.encode(memory)) > _MEMORY_BYTES_MAX:
        memory = structs.replace(
            memory,
            missing=dict(list(memory.missing.items())[: len(memory.missing) // 2]),
            unrecorded_reaps=dict(
                list(memory.unrecorded_reaps.items())[: len(memory.unrecorded_reaps) // 2]
            ),
        )
    return memory


def _reaped_since(home: str, owner: int, moment: float) -> int:
    from exporter.runs.journal import journal_of  # only where reaps are enforced

    with journal_of(home, owner) as runs:
        return runs.done_since(END_SESSION, moment) if runs is not None else 0


# The handlers of `protocol.CALLS`


def probe(home: WorkerHome, request: ProbeRequest, reporter: Reporter) -> Probe:
    del reporter
    return home.probe(request.owner)


def scan(home: WorkerHome, request: ScanRequest, reporter: Reporter) -> Plans:
    for part in home.read(request):
        reporter.part(part)
    trim_heap()  # SQLite's pages and the parts of the reply were there
    if request.want != Want():
        reporter.progress(0, 1)  # the reading is delivered: the plans have their own time limit
    plans = home.plans(request)
    return plans if request.kept is None else structs.replace(plans, kept=home.kept())


def access(home: WorkerHome, request: ProbeRequest, reporter: Reporter) -> list[DeniedPart]:
    del home, reporter
    return denied_parts(request.home)


def explain(home: WorkerHome, request: ExplainRequest, reporter: Reporter) -> ExplainReply:
    del reporter
    return home.explain(request.session_id, request.owner)
