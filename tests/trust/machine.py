"""The steps of the campaign, and how they are drawn.

A step is a name and three numbers. The numbers choose among what there is (`a` modulo the count),
so a script of steps still means something when steps are left out of it: that is how a failure is
made shorter. A step that finds nothing to do does nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.trust.model import HOUR, BrokenPromiseError, Home, Model, Process, Rules, Session

LONG = 10_000_000


class Step(NamedTuple):
    name: str
    a: int = 0
    b: int = 0
    c: int = 0


WEIGHTS = {
    "start": 10,
    "say": 18,
    "resume": 5,
    "new": 3,
    "branch": 2,
    "rotate": 3,
    "delegate": 2,
    "quit": 4,
    "kill": 5,
    "stop": 1,
    "go_on": 2,
    "api_turn": 4,
    "cron": 2,
    "route": 2,
    "hold": 1,
    "let_go": 2,
    "plugins": 1,
    "dump": 2,
    "checkpoint": 1,
    "remove_work": 1,
    "old_sessions": 2,
    "scan": 18,
    "scans": 8,
    "wait": 12,
    "set_clock": 2,
    "suspend": 2,
    "reboot": 1,
    "restart": 2,
    "reap": 2,
    "prune": 4,
    "undo": 2,
    "purge": 1,
    "undo_all": 1,
    "race": 5,
    "fault": 6,
    "damage_trash": 1,
    "damage_journal": 1,
    "back_up": 2,
    "import_backup": 2,
}
WAITS = (5, 31, 61, 61, 121, 300, 660, 660, 1900, 2 * HOUR + 120, 5 * HOUR, 26 * HOUR, 74 * HOUR)
LONG_WAITS = (8 * 24 * HOUR, 40 * 24 * HOUR, 95 * 24 * HOUR)
CLOCK_STEPS = (-7200, -1800, -45, 45, 1800, 7200, 3 * 86400)
KINDS = ("chat", "chat", "chat", "oneshot", "gateway", "tui", "program", "visitor", "maintenance")
SOURCES = {"tui": "tui", "gateway": "telegram"}
_HEALS = ("give_back", "reopen_session")
FAULTS = ("kill", "kill", "kill", "ENOSPC", "EIO", "EMFILE", "EROFS")


def draw_episode(seed: int, steps: int) -> list[Step]:
    """The script of an episode.

    At its end a conversation comes back, which takes weeks. Then the journals are lost, and what
    was ended meanwhile is used again. Every second episode boots first: a clock that was set stops
    pruning until then, and no process is left to use again what it was on.
    """
    end = [] if seed % 2 else [Step("reboot")]
    end += [Step("come_back", seed, seed // 3, seed + 1), Step("lose_journals")]
    end += [*(Step("say", number) for number in range(4)), Step("undo_all")]
    return [*draw(seed, steps)[: -len(end)], *end]


def draw(seed: int, steps: int, weights: dict[str, int] | None = None) -> list[Step]:
    """The script of a seed."""
    chance = random.Random(seed)
    table = weights or WEIGHTS
    names = chance.choices(list(table), list(table.values()), k=steps)
    return [Step(name, *(chance.randrange(LONG) for _ in range(3))) for name in names]


class Machine:
    """Takes steps on the fast stage and checks all homes after each."""

    def __init__(self, stage: Any, host: Any, fault: Any) -> None:
        self.stage = stage
        self.clock = stage.clock
        self._host, self._fault_type = host, fault
        self.model = Model(self.clock, Rules())
        self.model.homes = {home.path: home for home in stage.homes}
        self.model.processes = stage.processes
        self._numbers = iter(range(1, LONG))
        self._works: list[int] = []
        self._backed_up: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.seen = {home.path: stage.look(home) for home in stage.homes}
        self._true_wall = self.clock.wall - self.clock.true
        self._errors = (0.0, 0.0)
        """How far the wall clock was behind and ahead so far."""

    # Taking steps

    def take(self, step: Step) -> None:
        """Take one step and check everything."""
        self.counts[step.name] += 1
        for home in self.homes:
            home.by_hand = home.purging = False
        self._host.acted.clear()
        getattr(self, f"_{step.name}")(step)
        wrong = self.clock.wall - self.clock.true - self._true_wall
        self._errors = (min(wrong, self._errors[0]), max(wrong, self._errors[1]))
        self.model.clock_wrong_by = self._errors[1] - self._errors[0]
        self._check()

    def _check(self) -> None:
        for home in self.homes:
            before, after = self.seen[home.path], self.stage.look(home)
            self.model.check(home, before, after, ours=self._ours)
            self.seen[home.path] = after

    @property
    def homes(self) -> list[Home]:
        return list(self.model.homes.values())

    def _token(self) -> str:
        return f"tok{next(self._numbers):08x}x"

    def _home(self, number: int) -> Home:
        return self.homes[number % len(self.homes)]

    def _process(self, number: int, *kinds: str) -> Process | None:
        fitting = [
            each
            for each in self.model.processes.values()
            if not each.stopped and (not kinds or each.kind in kinds)
        ]
        return fitting[number % len(fitting)] if fitting else None

    def _session(self, home: Home, number: int) -> Session | None:
        """One that Hermes can resume: its row is there."""
        there = self.seen[home.path].rows
        found = [each for each in home.sessions.values() if each.id in there]
        return found[number % len(found)] if found else None

    def _home_of(self, process: Process) -> Home:
        return self.model.homes[process.home]

    _ours = False

    def _acting(self, do: Callable[[], Any]) -> Any:
        """The product acts. What was there before must be known, so all homes are looked at."""
        self._ours = True
        try:
            answer = do()
            self.model.acted()
            self._check()
            return answer
        finally:
            self._ours = False

    # Hermes

    def _start(self, step: Step) -> None:
        if len(self.model.processes) > 14:
            return
        home = self._home(step.a)
        kind = KINDS[step.b % len(KINDS)]
        made = self.stage.start(home, kind)
        made.written = 100
        if kind == "visitor":
            made.has_database = False
            self._sync(home)
        resumes = kind in ("chat", "tui", "program", "visitor") and step.c % 3 == 0
        session = self._session(home, step.c) if resumes else None
        if session is not None:
            self._take_up(made, session)
            made.may_resume = True
            if kind == "chat" and step.c % 2:
                made.named = session.id
        if kind == "oneshot":
            self._say_in(made)

    def _sync(self, home: Home) -> None:
        """A process that only visits has closed the database again."""
        if not self.model.of(home):
            self.stage.close_database(home)

    def _take_up(self, process: Process, session: Session) -> None:
        """`--resume`, `/resume`: the row is reopened, if the process is a chat of Hermes."""
        process.on = session.id
        process.written += 10
        home = self._home_of(process)
        row = self.seen[home.path].rows[session.id]
        process.has_nothing = not row.tokens
        if process.kind in ("chat", "tui"):
            if row.tokens:
                self.stage.write(
                    home,
                    (
                        "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?",
                        [session.id],
                    ),
                )
            session.taken_up_empty = not row.tokens

    def _new_session(
        self, process: Process, source: str, parent: str | None = None, **how: Any
    ) -> Session:
        home = self._home_of(process)
        number = next(self._numbers)
        session_id = f"20300101_{number:06}_{number:06x}"
        if source == "cron":
            session_id = f"cron_job{number}_20300101_{number:06}"
        self.stage.write(home, self.stage.add_row(home, session_id, source, parent=parent, **how))
        return self.model.add(home, session_id, source, parent)

    def _say_in(self, process: Process, *, half: bool = False) -> None:
        home = self._home_of(process)
        if process.on is None:
            source = SOURCES.get(process.kind, "cli")
            process.on = self._new_session(process, source).id
        session = home.sessions[process.on]
        if session.id not in self.seen_rows(home):
            # Hermes makes the row again, with another source, and goes on.
            self.stage.write(home, self.stage.add_row(home, session.id, "unknown"))
        tokens = [self._token()] if half else [self._token(), self._token()]
        rows = [
            self.stage.message(session.id, role, token)
            for role, token in zip(("user", "assistant"), tokens, strict=False)
        ]
        count = (
            "UPDATE sessions SET message_count = message_count + ? WHERE id = ?",
            [len(rows), session.id],
        )
        self.stage.write(home, *rows, count)
        session.tokens += tokens
        process.written += 1000
        process.has_nothing = False
        self.model.active(home, session)
        came_later = session.reaped_true is not None and process.since >= session.reaped_true
        # One that takes up an emptied session shows as activity after our end, like these.
        taken_up = session.taken_up_empty and session.reaped_true is not None
        session.used_unseen = process.kind == "visitor" or came_later or taken_up
        if home.version == "0.13.0":
            token = self._token()
            old = [t for t, path in home.file_tokens.items() if session.id in path]
            path = self.stage.transcript(home, session.id, token)
            for each in old:
                if home.file_tokens[each] == path:
                    home.released.add(each)  # it is written anew
            home.file_tokens[token] = path

    def seen_rows(self, home: Home) -> Any:
        return self.stage.look(home).rows

    def _say(self, step: Step) -> None:
        process = self._process(step.a, "chat", "tui", "program", "visitor", "oneshot")
        if process is not None:
            self._say_in(process, half=step.b % 5 == 0)

    def _resume(self, step: Step) -> None:
        process = self._process(step.a, "chat", "tui", "program")
        if process is None:
            return
        home = self._home_of(process)
        session = self._session(home, step.b)
        if session is None or session.id == process.on:
            return
        if step.c % 3:  # best effort: sometimes the row that it leaves stays open
            self._leave(process, "resumed_other")
        self._take_up(process, session)

    def _leave(self, process: Process, reason: str) -> None:
        """Hermes ends the row that a process is on, unless it has an end already."""
        home = self._home_of(process)
        if process.on is None or process.on not in self.seen_rows(home):
            return
        sql = "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ? AND ended_at IS NULL"
        self.stage.write(home, (sql, [self.clock.wall, reason, process.on]))

    def _new(self, step: Step) -> None:
        process = self._process(step.a, "chat", "tui")
        if process is not None:
            self._leave(process, "new_session")
            process.on = None
            process.written += 10

    def _branch(self, step: Step) -> None:
        process = self._process(step.a, "chat")
        if process is None or process.on is None or process.has_nothing:
            return
        home = self._home_of(process)
        old = home.sessions[process.on]
        if old.id not in self.seen_rows(home) or not old.tokens:
            return
        self._leave(process, "branched")
        marker = "_branched_from" if home.version != "0.13.0" else None
        child = self._new_session(process, old.source, old.id, marker=marker)
        # Hermes copies what it has in memory: all of it.
        copies = [self.stage.message(child.id, "user", each) for each in old.tokens]
        self.stage.write(home, *copies)
        child.tokens = list(old.tokens)
        old.went_on_in = child.id
        process.on = child.id
        process.written += 1000

    def _rotate(self, step: Step) -> None:
        """Compression by rotation: the conversation goes on in a child."""
        process = self._process(step.a, "chat", "tui", "program")
        if process is None or process.on is None or process.has_nothing:
            return
        home = self._home_of(process)
        old = home.sessions[process.on]
        if old.id not in self.seen_rows(home) or not old.tokens:
            return
        self._leave(process, "compression")
        child = self._new_session(process, old.source, old.id)
        token = self._token()
        self.stage.write(home, self.stage.message(child.id, "user", token, summary=True))
        child.tokens = [token]
        old.went_on_in = child.id
        process.on = child.id
        process.written += 1000

    def _delegate(self, step: Step) -> None:
        process = self._process(step.a, "chat", "tui")
        if process is None or process.on is None:
            return
        home = self._home_of(process)
        if process.on not in self.seen_rows(home):
            return
        child = self._new_session(process, "subagent", process.on, marker="_delegate_from")
        token = self._token()
        self.stage.write(home, self.stage.message(child.id, "user", token))
        child.tokens, child.delegated_by = [token], process.pid
        process.written += 1000

    def _quit(self, step: Step) -> None:
        process = self._process(step.a)
        if process is None:
            return
        if process.kind in ("chat", "tui"):
            self._leave(process, "cli_close")
        self.stage.end(process, killed=False)

    def _kill(self, step: Step) -> None:
        process = self._process(step.a)
        if process is not None:
            self.stage.end(process, killed=True)

    def _stop(self, step: Step) -> None:
        process = self._process(step.a)
        if process is not None:
            process.stopped = True

    def _go_on(self, step: Step) -> None:
        stopped = [each for each in self.model.processes.values() if each.stopped]
        if stopped:
            stopped[step.a % len(stopped)].stopped = False

    def _api_turn(self, step: Step) -> None:
        """A turn through a gateway, on any row; it is not reopened."""
        process = self._process(step.a, "gateway")
        if process is None:
            return
        session = self._session(self._home_of(process), step.b)
        if session is not None:
            process.on = session.id
            self._say_in(process)
            process.on = None

    def _cron(self, step: Step) -> None:
        """A job begins, or the one under way ends."""
        process = self._process(step.a, "gateway")
        if process is None:
            return
        home = self._home_of(process)
        if process.on is not None and home.sessions[process.on].source == "cron":
            self._say_in(process)
            self._leave(process, "cron_complete")
            process.on = None
        else:
            process.on = self._new_session(process, "cron").id
            self._say_in(process, half=True)

    def _route(self, step: Step) -> None:
        home = self._home(step.a)
        session = self._session(home, step.b)
        if session is not None:
            home.held.setdefault(session.id, set()).add("routed")
            self.stage.route(home, [k for k, v in home.held.items() if "routed" in v])

    def _hold(self, step: Step) -> None:
        home = self._home(step.a)
        session = self._session(home, step.b)
        if session is not None:
            home.held.setdefault(session.id, set()).add("handoff")
            sql = "UPDATE sessions SET handoff_state = 'pending' WHERE id = ?"
            self.stage.write(home, (sql, [session.id]))

    def _let_go(self, step: Step) -> None:
        home = self._home(step.a)
        if not home.held:
            return
        held = list(home.held)[step.b % len(home.held)]
        home.held.pop(held)
        self.stage.route(home, [k for k, v in home.held.items() if "routed" in v])
        sql = "UPDATE sessions SET handoff_state = NULL WHERE id = ?"
        self.stage.write(home, (sql, [held]))
        if held in home.sessions:
            home.sessions[held].due_scans = 0

    def _plugins(self, step: Step) -> None:
        home = self._home(step.a)
        home.plugins = not home.plugins
        self.stage.plugins(home, there=home.plugins)

    def _dump(self, step: Step) -> None:
        home = self._home(step.a)
        session = self._session(home, step.b)
        if session is not None:
            token = self._token()
            path = self.stage.transcript(home, session.id, token, dump=step.c % 2 == 0)
            for old in [t for t, p in home.file_tokens.items() if p == path]:
                home.released.add(old)
            home.file_tokens[token] = path

    def _checkpoint(self, step: Step) -> None:
        number = next(self._numbers)
        home, token = self._home(step.a), self._token()
        home.file_tokens[token] = self.stage.checkpoint(home, number, token)
        self._works.append(number)

    def _remove_work(self, step: Step) -> None:
        if self._works:
            self.stage.remove_work(self._works.pop(step.a % len(self._works)))

    def _old_sessions(self, step: Step) -> None:
        """Chats that came and went: some ended, some left open, some empty."""
        home = self._home(step.a)
        made = self.stage.start(home, "chat")
        for number in range(2 + step.b % 4):
            made.on = None
            if (step.c + number) % 4 == 0:
                made.on = self._new_session(made, "cli").id  # without a message
            else:
                self._say_in(made)
            if number or step.c % 3:
                self._leave(made, "cli_close")
        self.stage.end(made, killed=step.c % 2 == 0)

    def _come_back(self, step: Step) -> None:
        """A conversation stands still so long that it is ended and pruned; then it goes on."""
        home = self._home(step.a)
        made = self.stage.start(home, ("chat", "program", "tui", "chat", "visitor")[step.b % 5])
        if made.kind == "visitor":
            made.has_database = False
            self._sync(home)
        self._say_in(made)
        for _ in range(2):
            self._old_sessions(step)  # newer ones: the newest are always kept
        self._check()
        last = 80 if step.c % 2 else 0
        for asleep, hours, scans in ((0, 0, 1), (74, 0, 2), (0, 74, 4), (0, 240, 3), (0, last, 3)):
            self.clock.suspend(asleep * HOUR)
            self.clock.advance(hours * HOUR)
            for _ in range(scans):
                self.clock.advance(61)
                self._scan_with(self.stage.agents[0])
            if hours == 240:
                self._prune(Step("prune", 1))  # by age: there need not be pressure
        self._say_in(made)
        self._check()
        self.clock.advance(15)
        self._scan_with(self.stage.agents[0])

    # Time

    def _wait(self, step: Step) -> None:
        waits = WAITS if step.b % 4 else LONG_WAITS
        self.clock.advance(waits[step.a % len(waits)])

    def _set_clock(self, step: Step) -> None:
        self.clock.set_wall(CLOCK_STEPS[step.a % len(CLOCK_STEPS)])

    def _suspend(self, step: Step) -> None:
        self.clock.suspend(WAITS[step.a % len(WAITS)])

    def _reboot(self, step: Step) -> None:
        self.stage.reboot()
        self.model.rebooted()
        for agent in self.stage.agents:
            agent.restart()

    # The product

    def _scan_with(self, agent: Any) -> None:
        before = {home.path: self.seen[home.path].rows for home in self.homes}
        self.model.acting = agent is self.stage.agents[0]
        try:
            fallen = self._acting(agent.scan)
        finally:
            self.model.acting = None
        if fallen:
            raise BrokenPromiseError(f"counters fell: {fallen}")
        faulty = self._faulty
        for home in self.homes:
            rows = self.seen[home.path].rows
            is_main = agent is self.stage.agents[0]
            self.model.scanned(home, before[home.path], rows, main=is_main)
            if not faulty and agent.up[home.path]:
                self.model.check_healed(
                    home, self.seen[home.path], since=agent.knows_since(home.path)
                )
                if agent is self.stage.agents[0]:
                    self.model.check_due(home, self.seen[home.path], enforcing=True)
            elif not faulty:
                raise BrokenPromiseError(f"{home.path} cannot be read: {agent.trouble(home)}")

    _faulty = False

    def _scan(self, step: Step) -> None:
        self.clock.advance(15)
        self._scan_with(self.stage.agents[0 if step.a % 4 else 1])

    def _scans(self, step: Step) -> None:
        """So many that everything due is done."""
        for _ in range(4 + step.a % 5):
            self.clock.advance(61)
            self._scan_with(self.stage.agents[0])

    def _restart(self, step: Step) -> None:
        self.stage.agents[step.a % 2].restart()
        if step.a % 2 == 0:
            self.model.agent_restarted()

    def _by_hand(self) -> Any:
        for home in self.homes:
            home.by_hand = True
        return self.stage.command()

    def _reap(self, step: Step) -> None:
        presume = step.a % 3 == 0
        for home in self.homes:
            for session in home.sessions.values():
                session.presumed_by_clock = presume
        self._acting(lambda: self._by_hand().reap(presume=presume))
        for home in self.homes:
            for session in home.sessions.values():
                session.presumed_by_clock = False

    def _prune(self, step: Step) -> None:
        self._acting(lambda: self._by_hand().prune(by_pressure=step.a % 3 == 0))

    def _undo(self, step: Step) -> None:
        command = self._by_hand()
        runs = [each["run"] for each in command.history() if each["kind"] in ("reap", "prune")]
        run = None if step.a % 2 or not runs else runs[step.b % len(runs)]
        self._undo_run(run)

    def _undo_run(self, run: str | None) -> None:
        before = {home.path: self.seen[home.path] for home in self.homes}
        self._acting(lambda: self._by_hand().undo(run))
        runs = self._by_hand().history()
        undos = {each["run"] for each in runs if each["kind"] == "undo"}
        for home in self.homes:
            actions = self.seen[home.path].actions.values()
            # What came back by itself, just before, was given back by a run of its own.
            by_itself = {each.target for each in actions if each.action in _HEALS} - {
                each.target for each in actions if each.run in undos
            }
            for session_id, row in self.seen[home.path].rows.items():
                if session_id in by_itself:
                    continue
                was = before[home.path].rows.get(session_id)
                if (
                    was is None
                    or (row.ended_at is None and was.ended_at is not None)
                    or len(row.tokens) > len(was.tokens)  # it was emptied, and its row had stayed
                ):
                    home.sessions[session_id].restored_true = self.clock.true

    def _purge(self, step: Step) -> None:
        command = self._by_hand()
        runs = [each["run"] for each in command.history() if each["kind"] == "prune"]
        for home in self.homes:
            home.purging = True
        run = None if step.a % 3 == 0 or not runs else runs[step.b % len(runs)]
        self._acting(lambda: self._by_hand().purge(run))

    def _undo_all(self, step: Step) -> None:
        """Undo every prune: all that was not purged is in the home again."""
        for _ in range(3):  # runs that the journal has lost are noted again
            self.clock.advance(61)
            self._scan_with(self.stage.agents[0])
        command = self._by_hand()
        runs = [each for each in command.history() if each["kind"] == "prune"]
        for each in runs[:20]:
            if each["undoable_until"]:
                self._undo_run(each["run"])
        for home in self.homes:
            seen = self.seen[home.path]
            if home.journal_garbled or len(runs) > 20:
                continue
            here = seen.in_database() | seen.in_files()
            lost = (seen.in_trash() - here - home.released) & {
                token for each in home.sessions.values() for token in each.tokens
            }
            if lost:
                raise BrokenPromiseError(
                    f"undo of all runs left messages in the trash: {sorted(lost)[:5]}"
                )

    # Faults

    def _race(self, step: Step) -> None:
        """A process opens the database, and takes a session up, between the look and the write."""
        home = self._home(step.a)
        session = self._leak(home)
        self.clock.advance(660)
        self._scan_with(self.stage.agents[0])
        calls = iter(range(1, LONG))
        # A reap checks who has the database open before it begins, reads and writes, under the
        # write lock, and after the commit. A process that comes later finds the session ended.
        at = 1 + step.c % 5

        def appear(where: str) -> None:
            if where == home.path and next(calls) == at:
                made = self.stage.start_without_opening(home, "chat")
                made.on, made.may_resume = session.id, True

        self._host.on_check = appear
        self.clock.advance(61)
        try:
            self._scan_with(self.stage.agents[0])
        finally:
            self._host.on_check = None
            self.stage.open_for_all(home)

    def _leak(self, home: Home) -> Session:
        """A chat says something and is killed."""
        made = self.stage.start(home, "chat")
        self._say_in(made)
        self.stage.end(made, killed=True)
        self._check()
        assert made.on is not None
        return home.sessions[made.on]

    def _fault(self, step: Step) -> None:
        """The next request that acts is killed, or meets an error, at some step of it."""
        if step.c % 4 > 1:  # an automatic run: give it something to do
            for _ in range(1 + step.b % 3):
                self._leak(self._home(step.a))
            if step.b % 2:
                self._old_sessions(step)
            self._check()
            self.clock.advance((660, 26 * HOUR, 95 * 24 * HOUR)[step.b % 3])
            self._scan_with(self.stage.agents[0])
        kind = FAULTS[step.a % len(FAULTS)]
        at = 1 + step.b % (20 if kind == "kill" else 8)
        fault = self._host.next_fault = self._fault_type(kind, at)
        self.clock.advance(61)
        self._faulty = True
        try:
            match step.c % 4:
                case 0:
                    self._prune(step)
                case 1:
                    self._undo(step)
                case _:
                    self._scan_with(self.stage.agents[0])
        finally:
            self._faulty = False
            self._host.next_fault = None
        if fault.happened:
            self.model.agent_restarted()  # the worker, in this case
            self.counts[f"fault {kind}"] += 1

    def _damage_trash(self, step: Step) -> None:
        """Bytes of one file in the trash change: only what is in it may be lost."""
        home = self._home(step.a)
        trash = Path(home.path) / ".hermes-exporter/backups/trash"
        files = sorted(each for each in trash.rglob("*") if each.is_file() and each.stat().st_size)
        if not files:
            return
        file = files[step.b % len(files)]
        content = bytearray(file.read_bytes())
        seen = self.stage.look(home).trash.get(str(file.relative_to(trash)), frozenset())
        home.released |= seen
        for offset in range(4):
            content[(step.c + offset) % len(content)] ^= 0x55
        file.write_bytes(content)

    def _damage_journal(self, step: Step) -> None:
        home = self._home(step.a)
        journal = Path(home.path) / ".hermes-exporter/journal.db"
        if not journal.exists() or home.journal_damaged or step.a % 3:
            return
        home.journal_damaged = True
        if step.b % 3 == 0:
            journal.unlink()
            return
        home.journal_garbled = True
        content = bytearray(journal.read_bytes())
        for offset in range(64):
            content[(step.c + offset) % len(content)] ^= 0x55
        journal.write_bytes(content)

    def _lose_journals(self, step: Step) -> None:
        del step
        for home in self.homes:
            (Path(home.path) / ".hermes-exporter/journal.db").unlink(missing_ok=True)
            home.journal_damaged = True
        for agent in (*self.stage.agents, *self.stage.agents):
            self.clock.advance(61)
            self._scan_with(agent)

    # Backups

    def _back_up(self, step: Step) -> None:
        home = self._home(step.a)
        if not self.model.of(home):
            self.stage.back_up(home)
            self._backed_up.add(home.path)

    def _import_backup(self, step: Step) -> None:
        """An older database takes the place of the present one, and perhaps an older journal."""
        home = self._home(step.a)
        if home.path not in self._backed_up or self.model.of(home):
            return
        if step.b % 2:
            self.stage.restore(home)
        else:
            home.journal_damaged = True
            self.stage.import_backup(home)
        seen = self.seen[home.path] = self.stage.look(home)
        self.model.rewritten(home, seen)
        held = [each for each, why in home.held.items() if "handoff" in why]
        sql = "UPDATE sessions SET handoff_state = NULL"
        self.stage.write(home, (sql, []))
        for each in held:
            home.held[each].discard("handoff")
        self.seen[home.path] = self.stage.look(home)


def shrink(script: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """The shortest script found that still fails, by leaving out ever smaller parts."""
    current = list(script)
    size = max(1, len(current) // 2)
    while size:
        start = 0
        while start < len(current):
            shorter = current[:start] + current[start + size :]
            if fails(shorter):
                current = shorter
            else:
                start += size
        size //= 2
    return current


def lines(script: Sequence[Step]) -> Iterator[str]:
    for step in script:
        yield f"{step.name} {step.a} {step.b} {step.c}"


def parse(text: str) -> list[Step]:
    found = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, *numbers = line.split()
            found.append(Step(name, *map(int, numbers)))
    return found


__all__ = ["WEIGHTS", "Machine", "Step", "draw", "draw_episode", "lines", "parse", "shrink"]
