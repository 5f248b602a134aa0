"""Run the campaign with real processes: `python -m tests.trust.real --seed 1 --steps 60`.

Hermes, two agents in enforce mode and the commands are real; presumptions take seconds. An agent
acts at any moment, so the model looks at the times in the journal: who was on a session then?
`--script FILE` takes the steps of a file; what real processes do is not the same each time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.real.acp import editor
from tests.real.agent import Agent, agent
from tests.real.api_server import api_server
from tests.real.cli import chat, chat_once
from tests.real.command import run as run_command
from tests.real.hermes import REPOSITORY, Hermes, python_for
from tests.real.holders import holder
from tests.real.stub_model import stub_model
from tests.real.tui import tui
from tests.real.waiting import wait_until
from tests.support.fault_injection import faulty_python, run_with
from tests.trust.machine import Step, draw, lines, parse
from tests.trust.model import REAPABLE, BrokenPromiseError, Observation, Row
from tests.trust.observe import Observer

EPISODE_STEPS = 60
MIN_IDLE, SERVER, CHAT = 1.0, 4.0, 8.0
SLACK = 1.0
STOPPED_SLACK = 5.0
"""A reap may rest on a scan of so many seconds ago, in which a process was not stopped yet."""
SETTINGS = f"""
scan: {{interval: 400ms}}
reaper:
  {{mode: enforce, interval: 400ms, min_idle: {MIN_IDLE:.0f}s, max_per_minute: 1000,
   presume_after: {{server: {SERVER:.0f}s, chat: {CHAT:.0f}s}}}}
prune:
  mode: enforce
  interval: 1s
  cooldown: 1s
  caps: {{items: 5000, bytes: 10GiB, share: 100%}}
  keep: {{newest: 1}}
  trash: {{keep: KEEP}}
  thresholds:
    state_db_payload: {{high: 2KB, low: 1KB}}
    empty_sessions: {{high: 2, low: 1}}
    checkpoints: {{high: 60KiB, low: 20KiB}}
  policies:
    orphan_checkpoints: {{older_than: 5s}}
    empty_sessions: {{older_than: 5s}}
    trivial_sessions: {{older_than: 12s}}
    old_sessions: {{older_than: 20s}}
"""
WEIGHTS = {
    "say": 16,
    "start_chat": 3,
    "start_program": 2,
    "one_shot": 2,
    "start_gateway": 2,
    "start_tui": 2,
    "start_editor": 2,
    "checkpoint": 2,
    "remove_work": 1,
    "import_backup": 2,
    "api_turn": 5,
    "cron": 2,
    "new": 2,
    "resume": 3,
    "branch": 2,
    "compress": 1,
    "kill": 5,
    "quit": 2,
    "stop": 1,
    "go_on": 2,
    "route": 1,
    "plugins": 1,
    "wait": 6,
    "settle": 4,
    "restart": 2,
    "kill_worker": 2,
    "reap": 1,
    "prune": 2,
    "undo": 2,
    "purge": 1,
    "killed_prune": 2,
    "broken_prune": 1,
    "few_descriptors": 1,
    "full_disk": 1,
    "read_only": 1,
    "damage_trash": 1,
    "damage_journal": 1,
    "restore": 1,
    "upgrade": 1,
}
_KILL_AT = """
import itertools, os, signal
from contextlib import contextmanager
steps, real = itertools.count(1), module.transaction
@contextmanager
def transaction(connection):
    if next(steps) == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
    with real(connection):
        yield
    if next(steps) == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
module.transaction = transaction
"""
_FAIL_AT = """
import errno, itertools, os
steps, real = itertools.count(1), os.rename
def rename(*arguments, **how):
    if next(steps) == {at}:
        raise OSError(errno.EIO, "made up")
    return real(*arguments, **how)
os.rename = rename
"""


_SNAPSHOT = """
from pathlib import Path
from hermes_cli import backup
if {known!r}:
    assert backup.restore_quick_snapshot({known!r}, hermes_home=Path({home!r}))
else:
    backup.create_quick_snapshot(hermes_home=Path({home!r}))
"""


@dataclass
class Span:
    """A process was on a session from a moment to another."""

    session: str
    since: float
    until: float | None = None


@dataclass
class Live:
    """A process of Hermes, or a program that embeds it."""

    kind: str
    home: RealHome
    pid: int
    handle: Any
    stack: ExitStack
    spans: list[Span] = field(default_factory=list)
    stopped: bool = False
    stopped_at: float = 0.0
    ended: bool = False
    window: str = ""
    """The name by which a TUI or an editor knows its session."""

    @property
    def on(self) -> str | None:
        return self.spans[-1].session if self.spans and self.spans[-1].until is None else None

    def take(self, session: str) -> None:
        if self.on != session:
            self.leave()
            self.spans.append(Span(session, time.time()))

    def leave(self) -> None:
        if self.spans and self.spans[-1].until is None:
            self.spans[-1].until = time.time()


@dataclass
class RealHome:
    path: Path
    hermes: Hermes
    keep: float
    tokens: dict[str, str] = field(default_factory=dict)
    """What was said and stored: token to session."""
    said_by: dict[str, int] = field(default_factory=dict)
    """The process that said it, where a turn of a process did."""
    routed: dict[str, float] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    trashed_at: dict[str, float] = field(default_factory=dict)
    seen: Observation | None = None
    judged: set[tuple[str, int]] = field(default_factory=set)
    processes: list[Live] = field(default_factory=list)
    plugins_since: float | None = None
    plugins: bool = False
    damaged: bool = False
    rewritten_at: float | None = None
    purged: bool = False
    reaps: int = 0
    snapshot: str = ""
    """Hermes's own snapshot that can be restored."""
    backup: Path | None = None
    """The archive of `hermes backup`."""
    checkpoints: dict[Path, set[str]] = field(default_factory=dict)
    """Hermes's checkpoints of each working directory that is there."""

    def alive(self, *kinds: str) -> list[Live]:
        return [
            each
            for each in self.processes
            if not each.ended and not each.stopped and (not kinds or each.kind in kinds)
        ]

    def on_at(self, session: str, moment: float) -> list[Live]:
        return [
            each
            for each in self.processes
            for span in each.spans
            if span.session == session
            and span.since < moment
            and (span.until is None or span.until > moment)
        ]


class RealMachine:
    """Takes steps with real processes."""

    def __init__(self, folder: Path, stack: ExitStack, seed: int) -> None:
        self.folder = folder
        self._stack = stack
        self._model = stack.enter_context(stub_model())
        self._observer = Observer(folder / "scratch")
        self._numbers = iter(range(1, 10**9))
        self.counts: Counter[str] = Counter()
        self.reaped: Counter[str] = Counter()
        self._counters: dict[str, dict[Any, float]] = {}
        versions = ("0.16.0", "0.13.0", "0.18.2", "0.17.0")
        disk = folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], check=True)
        stack.callback(lambda: subprocess.run(["umount", "-l", disk], check=False))
        self.disk = disk
        self.homes = [
            self._make_home(folder / "a" / "home", "0.19.0", 3600.0),
            self._make_home(disk / "home", versions[seed % len(versions)], 3600.0),
        ]
        self._configuration = SETTINGS.replace("KEEP", "1h")
        self.agents: list[tuple[ExitStack, Agent]] = [self._start_agent(each) for each in "12"]
        self._look()

    def _make_home(self, path: Path, version: str, keep: float) -> RealHome:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
        self._model.configure(path, approvals={"destructive_slash_confirm": False})
        hermes = python_for(version)
        code = "from hermes_state import SessionDB\nSessionDB().close()"
        subprocess.run(
            [str(hermes.python), "-c", code],
            env=hermes.environment(path),
            check=True,
            capture_output=True,
        )
        return RealHome(path, hermes, keep)

    def _start_agent(self, name: str) -> tuple[ExitStack, Agent]:
        place = self.folder / f"agent-{name}"
        place.mkdir(exist_ok=True)
        stack = ExitStack()
        # The second one scans seldom: two that scan all the time leave Hermes no processor.
        settings = self._configuration.replace("400ms", "400ms" if name == "1" else "3s")
        running = stack.enter_context(
            agent(place, [each.path for each in self.homes], configuration=settings)
        )
        return stack, running

    def close(self) -> None:
        for home in self.homes:
            for each in home.processes:
                self._end(each)
        for stack, _ in self.agents:
            stack.close()

    # Looking

    def take(self, step: Step) -> None:
        self.counts[step.name] += 1
        getattr(self, f"_{step.name}")(step)
        self._look()

    def _look(self) -> None:
        for home in self.homes:
            for tries in range(6):
                after = self._observer.look(home.path)
                missing = self._missing(home, after)
                if not missing or tries == 5:
                    break
                time.sleep(0.3)  # between two looks it may have moved from one place to the other
            self._check(home, after, missing)
            home.seen, home.purged = after, False
        for number, (_, running) in enumerate(self.agents):
            self._check_counters(str(number), running)

    def _missing(self, home: RealHome, after: Observation) -> list[str]:
        here, trash = after.in_database() | after.in_files(), after.in_trash()
        for token in home.tokens:
            if token in here:
                home.trashed_at.pop(token, None)
            elif token in trash:
                home.trashed_at.setdefault(token, time.time())
        return [t for t in home.tokens if t not in here | trash | home.released]

    def _check(self, home: RealHome, after: Observation, missing: list[str]) -> None:
        if missing and home.purged:
            home.released |= set(missing)
        elif missing:
            where = {token: home.tokens[token] for token in missing[:3]}
            raise BrokenPromiseError(f"lost: {where}; neither in the database nor in the trash")
        for key, action in after.actions.items():
            if key in home.judged or action.state not in ("done", "undone") or action.at is None:
                continue
            home.judged.add(key)
            if action.action == "end_session":
                self._check_reap(home, action.target, action.proof or "", action.at, after)
            elif action.action == "delete_session":
                self._check_prune(home, action.target, action.at)
        before = home.seen.rows if home.seen is not None else {}
        noted = {each.target for each in after.actions.values()}
        for session, row in after.rows.items():
            if row.end_reason == "reaped" and session not in noted and not home.damaged:
                raise BrokenPromiseError(f"{session} was ended, and no run says so")
        gone = before.keys() - after.rows.keys() - noted
        if gone and not home.damaged and home.rewritten_at is None:
            raise BrokenPromiseError(f"{gone} are gone, and no run says so")
        if after.tripped and not home.damaged:
            raise BrokenPromiseError("automatic reaping stopped: a proof was wrong")

    def _needed(self, home: RealHome, process: Live) -> float:
        if process.kind == "gateway" and not home.plugins and home.plugins_since is None:
            return SERVER
        return SERVER if process.kind == "gateway" else CHAT

    def _idle_at(self, row: Row | None, moment: float) -> float | None:
        times = [t for t in row.times if t < moment] if row is not None else []
        return moment - max(times) if times else None

    def _check_reap(
        self, home: RealHome, session: str, proof: str, moment: float, after: Observation
    ) -> None:
        self.reaped[proof] += 1
        home.reaps += 1
        users = home.on_at(session, moment)
        what = f"{session} was ended as {proof}"
        if home.routed.get(session, moment) < moment - SLACK:
            raise BrokenPromiseError(f"{what}, and a chat leads to it")
        if proof == "proven" and users:
            raise BrokenPromiseError(f"{what}, and {users[0].kind} {users[0].pid} is on it")
        idle = self._idle_at(after.rows.get(session), moment)
        least = min(SERVER, CHAT) if proof == "presumed" else MIN_IDLE
        needed = max([least, *(self._needed(home, each) for each in users)])
        if idle is not None and idle + SLACK < needed:
            raise BrokenPromiseError(f"{what} after {idle:.1f} s of {needed:.0f}: {users}")
        stopped = [
            each.pid
            for each in home.processes
            if each.stopped and not each.ended and each.stopped_at < moment - STOPPED_SLACK
        ]
        if stopped and proof == "presumed":
            raise BrokenPromiseError(f"{what} beside stopped processes {stopped}")

    def _check_prune(self, home: RealHome, session: str, moment: float) -> None:
        self.reaped["pruned"] += 1
        row = home.seen.rows.get(session) if home.seen is not None else None
        idle = self._idle_at(row, moment)
        users = home.on_at(session, moment)
        needed = max([MIN_IDLE, *(self._needed(home, each) for each in users)])
        if idle is not None and idle + SLACK < needed:
            raise BrokenPromiseError(f"{session} was pruned after {idle:.1f} s: {users}")
        if home.routed.get(session, moment) < moment - SLACK:
            raise BrokenPromiseError(f"{session} was pruned, and a chat leads to it")

    def _check_counters(self, name: str, running: Agent) -> None:
        known = self._counters.setdefault(name, {})
        for key, value in running.metrics().items():
            if key[0].startswith("hermes_") and key[0].endswith("_total"):
                if value < known.get(key, 0.0):
                    raise BrokenPromiseError(f"{key} fell from {known[key]} to {value}")
                known[key] = value

    # Choosing

    def _token(self) -> str:
        return f"tok{next(self._numbers):08x}x"

    def _home(self, number: int) -> RealHome:
        return self.homes[number % len(self.homes)]

    def _process(self, number: int, *kinds: str) -> Live | None:
        found = [each for home in self.homes for each in home.alive(*kinds)]
        return found[number % len(found)] if found else None

    def _session(self, home: RealHome, number: int) -> str | None:
        assert home.seen is not None
        # Hermes up to 0.16 loses the next question after one that was not answered: it puts both
        # into one message, which it has stored already.
        keeps_all = home.hermes.at_least("0.17.0")
        found = [
            each
            for each, row in home.seen.rows.items()
            if row.tokens and (keeps_all or not row.unanswered)
        ]
        return found[number % len(found)] if found else None

    # Hermes

    def _begin(self, kind: str, home: RealHome, enter: Callable[[ExitStack], Any]) -> Live:
        stack = ExitStack()
        handle = enter(stack)
        pid = handle.pid if kind == "chat" else handle.process.pid
        made = Live(kind, home, pid, handle, stack)
        home.processes.append(made)
        return made

    def _start_chat(self, step: Step) -> None:
        home = self._home(step.a)
        if len(home.alive("chat")) > 1:
            self._say(step)
            return
        session = self._session(home, step.b) if step.c % 3 == 0 else None
        words = [*home.hermes.chat_arguments, *(("--resume", session) if session else ())]
        made = self._begin(
            "chat", home, lambda stack: stack.enter_context(chat(home.hermes, home.path, *words))
        )
        if session:
            # It may land on a session that goes on from the one it was told.
            made.handle.session = made.handle.session or session
            made.take(made.handle.session)
        self._say_in(made)

    def _start_program(self, step: Step) -> None:
        home = self._home(step.a)
        if home.alive("program"):
            self._say(step)
            return
        made = self._begin(
            "program",
            home,
            lambda stack: stack.enter_context(holder(home.hermes, home.path, module="embed")),
        )
        session = self._session(home, step.b) if step.c % 2 else None
        session = session or f"embedded_{next(self._numbers)}"
        made.handle.ask("take_up", session=session)
        made.take(session)
        self._say_in(made)

    def _start_gateway(self, step: Step) -> None:
        home = self._home(step.a)
        if home.alive("gateway"):
            self._api_turn(step)
            return
        if not home.hermes.at_least("0.16.0"):
            return
        self._begin(
            "gateway",
            home,
            lambda stack: stack.enter_context(api_server(home.hermes, home.path)),
        )

    def _start_tui(self, step: Step) -> None:
        home = self._home(step.a)
        if home.alive("tui"):
            self._say(step)
            return
        made = self._begin(
            "tui", home, lambda stack: stack.enter_context(tui(home.hermes, home.path))
        )
        session = self._session(home, step.b) if step.c % 2 else None
        made.window = made.handle.resume(session) if session else made.handle.create()
        self._say_in(made)

    def _start_editor(self, step: Step) -> None:
        home = self._home(step.a)
        if home.alive("editor"):
            self._say(step)
            return
        made = self._begin(
            "editor", home, lambda stack: stack.enter_context(editor(home.hermes, home.path))
        )
        made.window = made.handle.create()
        self._say_in(made)

    def _one_shot(self, step: Step) -> None:
        home, token = self._home(step.a), self._token()
        session = chat_once(home.hermes, home.path, words=token)
        home.tokens[token] = session

    def _cron(self, step: Step) -> None:
        """A run of the scheduler that is killed in the middle."""
        home, token = self._home(step.a), self._token()
        session = f"cron_job{next(self._numbers)}_20300101_000000"
        made = self._begin(
            "cron",
            home,
            lambda stack: stack.enter_context(holder(home.hermes, home.path, ("gateway", "run"))),
        )
        made.handle.ask("create", session=session, source="cron")
        made.handle.ask("append", session=session, text=token)
        home.tokens[token] = session
        made.take(session)
        made.leave()
        made.handle.kill()
        self._end(made)

    def _say(self, step: Step) -> None:
        process = self._process(step.a, "chat", "program", "tui", "editor")
        if process is not None:
            self._say_in(process)

    def _say_in(self, process: Live) -> None:
        """A turn; afterwards the session has its past, and is open again."""
        token = self._token()
        if process.kind == "chat":
            process.handle.say(token)
        elif process.kind == "tui":
            process.handle.say(process.window, token)
        elif process.kind == "editor":
            process.handle.wait(process.handle.ask(process.window, token))
        else:
            process.handle.ask("say", words=token)
        home = process.home
        home.said_by[token] = process.pid
        if process.kind == "editor" and not home.hermes.at_least("0.18.2"):
            # It writes the whole session anew, from its memory: what another process said in it
            # meanwhile is lost by Hermes itself.
            home.released |= {
                each
                for each, session in home.tokens.items()
                if session == process.on and home.said_by.get(each) != process.pid
            }
        self._stored(home, process, token)

    def _stored(self, home: RealHome, process: Live | None, token: str) -> None:
        def found() -> list[str]:
            rows = self._observer.look(home.path).rows
            there = [each for each, row in rows.items() if token in row.tokens]
            return sorted(there, key=lambda each: max(rows[each].times))

        session = wait_until(found, f"{token} is stored")[-1]
        home.tokens[token] = session
        if process is not None:
            process.take(session)
        self._wait_healed(home, session)

    def _wait_healed(self, home: RealHome, session: str) -> None:
        """What was used after we ended or pruned it is put right by itself."""
        if home.damaged:
            return
        mine = [t for t, where in home.tokens.items() if where == session]

        def is_right() -> bool:
            after = self._observer.look(home.path)
            row = after.rows.get(session)
            if row is None:
                return False
            missing = set(mine) - set(row.tokens) - home.released
            past = not missing & (after.in_trash() - after.in_database())
            ended = row.ended_at is not None and row.end_reason == "reaped"
            return past and (not ended or (row.ended_at or 0) >= max(row.times) - SLACK)

        try:
            wait_until(is_right, "it is put right")
        except AssertionError:
            row = self._observer.look(home.path).rows.get(session)
            raise BrokenPromiseError(f"{session} was used and is not put right: {row}") from None

    def _api_turn(self, step: Step) -> None:
        process = self._process(step.a, "gateway")
        if process is None:
            return
        session = self._session(process.home, step.b)
        if session is None:
            return
        token = self._token()
        process.take(session)
        process.handle.chat(session, token).join(120)
        process.leave()
        with suppress(AssertionError):
            self._stored(process.home, None, token)

    def _new(self, step: Step) -> None:
        process = self._process(step.a, "chat")
        if process is not None and process.on:
            process.leave()
            process.handle.window.type("/new --yes")
            process.handle.session = ""
            self._say_in(process)

    def _resume(self, step: Step) -> None:
        process = self._process(step.a, "chat")
        if process is None:
            return
        session = self._session(process.home, step.b)
        if session is None or session == process.on:
            return
        process.leave()
        process.handle.window.type(f"/resume {session}")
        self._say_in(process)

    def _branch(self, step: Step) -> None:
        process = self._process(step.a, "chat")
        if process is not None and process.on:
            process.leave()
            process.handle.branch()
            self._say_in(process)

    def _compress(self, step: Step) -> None:
        process = self._process(step.a, "chat")
        rows = process.home.seen.rows if process is not None and process.home.seen else {}
        row = rows.get(process.on) if process is not None and process.on else None
        # With less there is nothing to summarize, and Hermes says something else.
        if process is not None and row is not None and len(row.times) > 8:
            process.leave()
            process.handle.compress()
            self._say_in(process)

    def _end(self, process: Live) -> None:
        if not process.ended:
            process.ended = True
            process.leave()
            with suppress(Exception):
                if process.stopped:
                    os.kill(process.pid, signal.SIGCONT)
                os.kill(process.pid, signal.SIGKILL)
            with suppress(Exception):
                process.stack.close()

    def _kill(self, step: Step) -> None:
        process = self._process(step.a)
        if process is not None:
            self._end(process)

    def _quit(self, step: Step) -> None:
        process = self._process(step.a, "chat", "program", "tui", "editor")
        if process is not None:
            process.leave()
            if process.kind == "tui":
                process.handle.quit()
            if process.kind == "chat":
                process.handle.quit()
            process.ended = True
            with suppress(Exception):
                process.stack.close()

    def _stop(self, step: Step) -> None:
        process = self._process(step.a)
        if process is not None:
            os.kill(process.pid, signal.SIGSTOP)
            process.stopped, process.stopped_at = True, time.time()

    def _go_on(self, step: Step) -> None:
        for home in self.homes:
            for each in home.processes:
                if each.stopped and not each.ended:
                    os.kill(each.pid, signal.SIGCONT)
                    each.stopped = False

    def _route(self, step: Step) -> None:
        home = self._home(step.a)
        session = self._session(home, step.b)
        if session is not None:
            home.routed.setdefault(session, time.time())
            chats = {f"chat:{each}": {"session_id": each} for each in home.routed}
            folder = home.path / "sessions"
            folder.mkdir(exist_ok=True)
            (folder / ".new").write_text(json.dumps(chats))
            (folder / ".new").replace(folder / "sessions.json")
            home.routed[session] = time.time()

    def _plugins(self, step: Step) -> None:
        home = self._home(step.a)
        home.plugins, home.plugins_since = not home.plugins, time.time()
        folder = home.path / "plugins" / "mine"
        if home.plugins:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "plugin.yaml").write_text("name: mine\n")
            (folder / "__init__.py").write_text("def register(context):\n    pass\n")
        else:
            shutil.rmtree(folder.parent, ignore_errors=True)

    # The product

    def _wait(self, step: Step) -> None:
        del step
        for _, running in self.agents:
            running.next_scan()

    def _settle(self, step: Step) -> None:
        """Whatever no process runs is ended within its time."""
        home = self._home(step.a)
        if home.damaged or any(each.stopped and not each.ended for each in home.processes):
            return
        alive = home.alive()
        used = {each.on for each in alive}
        named = {each.handle.session for each in alive if each.kind == "chat"}
        seen = self._observer.look(home.path)
        told = [a.target for a in seen.actions.values() if a.action == "reopen_session"]
        due = [
            each
            for each, row in seen.rows.items()
            if row.ended_at is None and each not in used | named | home.routed.keys()
            if each not in told and row.tokens and row.source in REAPABLE
        ]
        names = {s for s in due if any(s in " ".join(_arguments(p.pid)) for p in alive)}

        def ended() -> bool:
            rows = self._observer.look(home.path).rows
            open_rows = [s for s in due if s in rows and rows[s].ended_at is None]
            return not set(open_rows) - names

        if home.reaps + len(due) > 9:  # slow start: the others follow in the next hours
            return
        try:
            wait_until(ended, "dead sessions are ended")
        except AssertionError:
            raise BrokenPromiseError(f"{set(due) - names} are dead, and were not ended") from None

    def _restart(self, step: Step) -> None:
        number = step.a % 2
        stack, running = self.agents[number]
        if step.b % 2:
            running.kill()
        stack.close()
        self.agents[number] = self._start_agent("12"[number])

    def _kill_worker(self, step: Step) -> None:
        for _, running in self.agents:
            for child in psutil.Process(running.pid).children():
                with suppress(psutil.Error):
                    if "exporter.workers.worker" in child.cmdline():
                        child.kill()
        self._wait(step)

    def _words(self, *words: str) -> list[str]:
        homes = [word for home in self.homes for word in ("--home", str(home.path))]
        settings = self.folder / "agent-1" / "hermes-exporter.yml"
        state = self.folder / "agent-1" / "state"
        return [*words, "--config.file", str(settings), "--state-dir", str(state), *homes]

    def _command(self, *words: str) -> None:
        done = run_command(*self._words(*words))
        if done.returncode not in (0, 1, 3) or "Traceback" in done.stderr:
            raise BrokenPromiseError(f"{words} ended with {done.returncode}: {done.stderr[-500:]}")

    def _reap(self, step: Step) -> None:
        self._command("reap", "--yes", *(("--presume",) if step.a % 2 else ()))

    def _prune(self, step: Step) -> None:
        del step
        self._command("prune", "--yes")

    def _undo(self, step: Step) -> None:
        del step
        self._command("undo", "--last")

    def _purge(self, step: Step) -> None:
        del step
        for home in self.homes:
            home.purged = True
        self._command("purge", "--yes")

    # Faults

    def _with_fault(self, step: Step, module: str, code: str) -> None:
        place = self.folder / f"fault-{next(self._numbers)}"
        place.mkdir()
        python = faulty_python(place, module, code.format(at=1 + step.b % 12))
        words = (("prune", "--yes"), ("reap", "--yes"), ("undo", "--last"))[step.c % 3]
        done = run_with(python, *self._words(*words))
        if "Traceback" in done.stderr:
            raise BrokenPromiseError(f"{words}: {done.stderr[-500:]}")

    def _killed_prune(self, step: Step) -> None:
        self._with_fault(step, "exporter.runs.journal_file", _KILL_AT)

    def _broken_prune(self, step: Step) -> None:
        self._with_fault(step, "exporter.runs.journal_file", _FAIL_AT)

    def _few_descriptors(self, step: Step) -> None:
        words = " ".join(self._words("prune", "--yes"))
        limit = 24 + step.a % 30
        command = f"ulimit -n {limit}; exec {sys.executable} -m exporter {words}"
        done = subprocess.run(
            ["bash", "-c", command], cwd=REPOSITORY, capture_output=True, text=True, timeout=300
        )
        if done.returncode not in (0, 1, 2, 3):
            raise BrokenPromiseError(f"with {limit} descriptors: {done.stderr[-500:]}")

    def _full_disk(self, step: Step) -> None:
        home, filler = self.homes[1], self.disk / "filler"
        # An emergency empties the trash that was there before it, whatever its age.
        home.released |= self._observer.look(home.path).in_trash()
        with suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(65536))
        home.released |= self._observer.look(home.path).in_trash()
        try:
            self._wait(step)
            self._command("prune", "--yes")
        finally:
            filler.unlink()

    def _read_only(self, step: Step) -> None:
        if self.homes[1].alive():
            return
        if subprocess.run(["mount", "-o", "remount,ro", self.disk], capture_output=True).returncode:
            return  # an agent writes just now
        try:
            self._wait(step)
            self._command("prune", "--yes")
        finally:
            subprocess.run(["mount", "-o", "remount,rw", self.disk], check=True)

    def _damage_trash(self, step: Step) -> None:
        home = self._home(step.a)
        trash = home.path / ".hermes-exporter/backups/trash"
        files = sorted(each for each in trash.rglob("*") if each.is_file() and each.stat().st_size)
        if files:
            file = files[step.b % len(files)]
            # A chunk holds several sessions, and there are two forms of it: all may be hit.
            home.released |= self._observer.look(home.path).in_trash()
            content = bytearray(file.read_bytes())
            for offset in range(4):
                content[(step.c + offset) % len(content)] ^= 0x55
            file.write_bytes(content)

    def _damage_journal(self, step: Step) -> None:
        home = self._home(step.a)
        journal = home.path / ".hermes-exporter/journal.db"
        if journal.exists() and step.b % 3 == 0:
            home.damaged = True
            content = bytearray(journal.read_bytes())
            for offset in range(64):
                content[(step.c + offset) % len(content)] ^= 0x55
            journal.write_bytes(content)

    def _restore(self, step: Step) -> None:
        """Hermes's own snapshot is taken, or the one that was taken is put back: a new file."""
        home = self._home(step.a)
        if any(not each.ended for each in home.processes):
            return
        self._inside(home, _SNAPSHOT.format(home=str(home.path), known=home.snapshot))
        if not home.snapshot:
            folders = sorted((home.path / "state-snapshots").iterdir())
            home.snapshot = folders[-1].name
            return
        home.snapshot = ""
        self._rewritten(home)

    def _import_backup(self, step: Step) -> None:
        """`hermes backup`, or `hermes import` of it: state.db is written anew in place."""
        home = self._home(step.a)
        if any(not each.ended for each in home.processes):
            return
        if home.backup is None:
            home.backup = self.folder / f"backup-{next(self._numbers)}.zip"
            self._hermes(home, "backup", "--output", str(home.backup))
            return
        # Hermes does not take the WAL of a killed process away: it must not lie beside the archive.
        self._inside(home, "from hermes_state import SessionDB\nSessionDB().close()")
        self._hermes(home, "import", "--force", str(home.backup))
        home.backup = None
        home.damaged = True  # the archive has the journal too
        self._rewritten(home)

    def _rewritten(self, home: RealHome) -> None:
        """An older database is there: what came after it may be gone."""
        home.rewritten_at = time.time()
        after = self._observer.look(home.path)
        kept = after.in_database() | after.in_trash() | after.in_files()
        home.released |= {token for token in home.tokens if token not in kept}
        home.seen = after

    def _hermes(self, home: RealHome, *words: str) -> None:
        subprocess.run(
            [str(home.hermes.python), str(home.hermes.program), *words],
            env=home.hermes.environment(home.path),
            cwd=home.path.parent,
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )

    def _inside(self, home: RealHome, code: str) -> None:
        subprocess.run(
            [str(home.hermes.python), "-c", code],
            env=home.hermes.environment(home.path),
            check=True,
            capture_output=True,
        )

    def _checkpoint(self, step: Step) -> None:
        """Hermes takes a checkpoint of a working directory; all earlier ones must be there."""
        home = self._home(step.a)
        known = list(home.checkpoints)
        new = step.b % 3 == 0 or not known
        work = self.folder / f"work-{next(self._numbers)}" if new else known[step.b % len(known)]
        folders = [str(work), *map(str, known)]
        answer = home.hermes.run("snapshot", home.path, snapshot=[[str(work), 1]], list=folders)
        found = {Path(each): set(hashes) for each, hashes in answer["snapshots"].items()}
        for folder, hashes in home.checkpoints.items():
            if hashes - found[folder]:
                raise BrokenPromiseError(f"checkpoints of {folder} are lost")
        home.checkpoints.update(found)

    def _remove_work(self, step: Step) -> None:
        home = self._home(step.a)
        if home.checkpoints:
            folder = list(home.checkpoints)[step.b % len(home.checkpoints)]
            del home.checkpoints[folder]
            shutil.rmtree(folder)

    def _upgrade(self, step: Step) -> None:
        """The next release opens the database and changes its schema in place."""
        home = self.homes[1]
        if any(not each.ended for each in home.processes):
            return
        home.hermes = python_for("0.19.0")
        code = "from hermes_state import SessionDB\nSessionDB().close()"
        subprocess.run(
            [str(home.hermes.python), "-c", code],
            env=home.hermes.environment(home.path),
            check=True,
            capture_output=True,
        )


def _arguments(pid: int) -> list[str]:
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


@contextmanager
def _episode_folder() -> Any:
    folder = Path(tempfile.mkdtemp(prefix="trust-"))
    try:
        yield folder
    finally:
        if os.environ.get("KEEP_HOMES"):
            print(folder, file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def episode(script: Sequence[Step], seed: int, counts: Counter[str]) -> str:
    """Take the steps; return what failed, or nothing."""
    number, step = -1, Step("begin")
    with _episode_folder() as folder, ExitStack() as stack:
        machine = None
        try:
            machine = RealMachine(folder, stack, seed)
            for step in script:
                number += 1
                machine.take(step)
        except Exception as error:  # noqa: BLE001 - any failure is a finding
            log = "".join(running.log()[-3000:] for _, running in machine.agents) if machine else ""
            said = f"{type(error).__name__}: {error}"
            return f"step {number} {step}: {said}\n{traceback.format_exc()[-3000:]}\n{log}"
        finally:
            if machine is not None:
                counts.update(machine.counts)
                counts.update({f"reaps {k}": v for k, v in machine.reaped.items()})
                machine.close()
            counts["steps"] += number + 1
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--steps", type=int, default=EPISODE_STEPS)
    parser.add_argument("--script", type=Path)
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    began = time.monotonic()
    print(f"seed {given.seed}, {given.steps} steps", flush=True)
    for number in range(-(-given.steps // EPISODE_STEPS)):
        seed = given.seed + number
        steps = min(EPISODE_STEPS, given.steps - number * EPISODE_STEPS)
        script = parse(given.script.read_text()) if given.script else draw(seed, steps, WEIGHTS)
        failed = episode(script, seed, counts)
        if failed:
            file = Path(f"trust-real-{seed}.script")
            file.write_text("\n".join([f"# seed {seed}", *lines(script)]) + "\n")
            print(f"seed {seed} failed at {failed}")
            print(f"again: python -m tests.trust.real --seed {seed} --script {file}")
            raise SystemExit(1)
    counts["seconds"] = int(time.monotonic() - began)
    print(json.dumps(dict(sorted(counts.items()))))


if __name__ == "__main__":
    main()
