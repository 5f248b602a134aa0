"""Hermes as people run it: chats on a terminal, one-shots, the gateway; against the stub model."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.real.hermes import Hermes
from tests.real.stub_model import ANSWER, HANG, TOOL_COMMAND, USE_TOOL, StubModel
from tests.real.terminal import PATIENCE_SECONDS, Terminal, terminal
from tests.real.waiting import wait_until

_PROMPT_SIGN = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
_BUSY_HINT = " msg="
_SESSION_SHOWN = re.compile(r"(?:Session:|Resumed session) (\d{8}_\d{6}_[0-9a-f]{6})")
_BRANCHED = re.compile(r"Branch session: +(\d{8}_\d{6}_[0-9a-f]{6})")
_COMPRESSED = "Approx request size:"
_NUMBERS = itertools.count(1)


class Chat:
    """An interactive `hermes` that waits at its prompt.

    Tests follow it on its screen: a process that reads the database has it open, too.
    """

    def __init__(self, hermes: Hermes, home: Path, window: Terminal) -> None:
        self._hermes = hermes
        self._home = home
        self.window = window
        window.wait_until_shown(lambda: window.takes_input, "hermes shows its prompt")
        shown = _SESSION_SHOWN.findall(window.output)
        self.session: str = shown[-1] if shown else ""
        """The session that it is on; there is no row of it before the first question."""
        self.pid = self._find_pid()

    def say(self, words: str = "hello") -> str:
        """Ask something; return the session when the answer is there and it waits again."""
        line = self.ask(words)
        self.wait_for_prompt()
        self.session = self.session or session_of(self._home, line)
        return self.session

    def wait_for_prompt(self) -> None:
        """Return when the turn is over."""
        self.window.wait_until_shown(lambda: not self._is_busy(), "hermes shows its prompt again")

    def ask_for_ever(self, model: StubModel) -> str:
        """Ask something that is never answered to the end; return when half of it is there."""
        line = self.ask(HANG)
        wait_until(
            lambda: line in model.half_answered, f"the model is asked {line!r}", PATIENCE_SECONDS
        )
        self._wait_for_message("user", since="0.17.0")
        return self.session

    def use_tool_for_ever(self) -> str:
        """Ask for something that takes a tool; return when that has begun to run."""
        self.ask(USE_TOOL)
        wait_until(lambda: self.tool_runs(), "the tool runs", PATIENCE_SECONDS)
        self._wait_for_message("assistant", since="0.18.2")
        return self.session

    def run_tool_in_background(self) -> None:
        """Let a second session use a tool for ever, beside the chat."""
        self.window.type(numbered(f"/background {USE_TOOL}"))
        wait_until(lambda: self.tool_runs(), "the tool runs", PATIENCE_SECONDS)

    def resume(self, session: str) -> None:
        self.window.type(f"/resume {session}")
        self.window.wait_for(f"Resumed session {session}")
        self.session = session

    def new(self) -> None:
        """Begin afresh: the old session is ended, and the next question makes a new one."""
        self.window.type("/new --yes")
        wait_until(lambda: self.session not in open_sessions(self._home), "the session is ended")
        self.session = ""

    def branch(self) -> str:
        """Copy the conversation to a new session and go on there; return that session."""
        before = len(_BRANCHED.findall(self.window.output))
        self.window.type("/branch")
        self.window.wait_until_shown(
            lambda: len(_BRANCHED.findall(self.window.output)) > before, "the branch is shown"
        )
        self.session = _BRANCHED.findall(self.window.output)[-1]
        return self.session

    def compress(self) -> None:
        """Summarize what was said; by rotation the chat goes on with another session."""
        shown = self.window.output.count(_COMPRESSED)
        self.window.type("/compress")
        self.window.wait_for(_COMPRESSED, shown + 1)

    def set_title(self, title: str) -> None:
        self.window.type(f"/title {title}")
        wait_until(
            lambda: ask(self._home, f"SELECT 1 FROM sessions WHERE title = '{title}'"),
            "the title is stored",
            PATIENCE_SECONDS,
        )

    def quit(self) -> None:
        self.window.type("/quit")
        self.window.process.wait(timeout=120)

    def kill(self) -> None:
        """SIGKILL to the process itself, whatever it runs in."""
        if self.pid != self.window.process.pid:
            os.kill(self.pid, signal.SIGKILL)
        self.window.kill()

    def is_running(self) -> bool:
        return self.window.process.poll() is None

    def tool_runs(self) -> bool:
        return any(
            " ".join(_command_line(process)) == TOOL_COMMAND
            for process in self.window.descendants()
        )

    def ask(self, words: str) -> str:
        """Type a question and see that it is being worked on."""
        line = numbered(words)
        before = len(self.window.output)
        self.window.type(line)
        hint = f"{_PROMPT_SIGN}{_BUSY_HINT}"
        self.window.wait_until_shown(
            lambda: hint in self.window.output[before:], "hermes is at work"
        )
        return line

    def _is_busy(self) -> bool:
        """While it works there is a hint at what can be typed behind the sign of the prompt.

        Of a sign that was just drawn the rest may still be on its way.
        """
        behind = self.window.output.rpartition(_PROMPT_SIGN)[2]
        return len(behind) < len(_BUSY_HINT) or behind.startswith(_BUSY_HINT)

    def _wait_for_message(self, role: str, *, since: str) -> None:
        """Wait for the last message to be stored; older releases store it when the turn ends."""
        if self._hermes.at_least(since):
            sql = f"SELECT role FROM messages WHERE session_id = '{self.session}' ORDER BY id"
            wait_until(
                lambda: [row["role"] for row in ask(self._home, sql)][-1:] == [role],
                f"a message of the {role} is stored",
            )

    def _find_pid(self) -> int:
        """Hermes itself: below `unshare` it is a child of what was started."""
        own = psutil.Process(self.window.process.pid)
        for process in (own, *self.window.descendants()):
            if str(self._hermes.program) in _command_line(process)[:2]:
                return int(process.pid)
        raise AssertionError("no process of hermes")


@contextmanager
def chat(
    hermes: Hermes,
    home: Path,
    *arguments: str,
    wrapper: Sequence[str | Path] = (),
    environment: dict[str, str] | None = None,
) -> Iterator[Chat]:
    """An interactive chat, at its prompt; `wrapper` is what it is run by."""
    command = [*wrapper, hermes.python, hermes.program, *(arguments or hermes.chat_arguments)]
    with terminal(
        command, {**user_environment(hermes, home), **(environment or {})}, home.parent
    ) as window:
        yield Chat(hermes, home, window)


def chat_once(hermes: Hermes, home: Path, *arguments: str, words: str = "hello") -> str:
    """A one-shot run to its end, which succeeds; return its session."""
    line = numbered(words)
    done = _run(hermes, home, *(arguments or ("chat", "-Q", "-q")), line)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "".join(ANSWER) in done.stdout
    return session_of(home, line)


@contextmanager
def unanswered_once(
    hermes: Hermes, home: Path, model: StubModel
) -> Iterator[subprocess.Popen[bytes]]:
    """A one-shot that is in the middle of its answer, and stays there."""
    line = numbered(HANG)
    with subprocess.Popen(
        [hermes.python, hermes.program, "chat", "-Q", "-q", line],
        env=user_environment(hermes, home),
        cwd=home.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_until(lambda: line in model.half_answered, "the model is asked", PATIENCE_SECONDS)
            yield process
        finally:
            process.kill()


def kanban_worker(hermes: Hermes, home: Path) -> str:
    """What the dispatcher of kanban tasks runs."""
    on_terminal = ("--cli",) if hermes.at_least("0.16.0") else ()
    return chat_once(
        hermes, home, *on_terminal, "--accept-hooks", "chat", "-q", words="work kanban task"
    )


def list_sessions(hermes: Hermes, home: Path) -> str:
    """What `hermes sessions list` shows."""
    done = _run(hermes, home, "sessions", "list")
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def gateway(hermes: Hermes, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`hermes gateway run` without any platform, when it has taken its lock and its database."""
    log = home.parent / f"{home.name}-gateway.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [hermes.python, hermes.program, "gateway", "run"],
            env=user_environment(hermes, home),
            cwd=home.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as process,
    ):
        try:

            def runs() -> bool:
                assert process.poll() is None, log.read_text()
                return _is_running_gateway(home, process.pid)

            wait_until(runs, "the gateway runs", PATIENCE_SECONDS)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _is_running_gateway(home: Path, pid: int) -> bool:
    try:
        state = json.loads((home / "gateway_state.json").read_text())
    except (FileNotFoundError, ValueError):
        return False
    return bool(state.get("pid") == pid and state.get("gateway_state") == "running")


def numbered(words: str) -> str:
    """The words, and a number that no other question of this test process has."""
    return f"{words} {next(_NUMBERS)}"


def session_of(home: Path, question: str) -> str:
    (row,) = ask(home, f"SELECT session_id FROM messages WHERE content LIKE '%{question}'")
    return str(row["session_id"])


def open_sessions(home: Path) -> set[str]:
    return {row["id"] for row in ask(home, "SELECT id FROM sessions WHERE ended_at IS NULL")}


def ask(home: Path, sql: str) -> list[dict[str, Any]]:
    """Rows of a home's database, through the sqlite3 program.

    It is one more holder for a moment: do not ask while a verdict is waited for, and never beside
    a process that lost its locks.
    """
    database = home / "state.db"
    if not database.exists():
        return []
    done = subprocess.run(
        [
            "sqlite3",
            "-json",
            "-readonly",
            "-cmd",
            ".timeout 60000",
            f"file:{database}?mode=ro",
            sql,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "no such table" in done.stderr:  # Hermes is still making it
        return []
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return rows


def _run(hermes: Hermes, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [hermes.python, hermes.program, *arguments],
        env=user_environment(hermes, home),
        cwd=home.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def user_environment(hermes: Hermes, home: Path) -> dict[str, str]:
    """What its tools leave in the folder for temporary files goes with the test.

    The programs that it probes for at its start are the system's: a developer's own may be slow.
    """
    temporary = home.parent / f"{home.name}-tmp"
    temporary.mkdir(exist_ok=True)
    return {**hermes.environment(home), "PATH": os.defpath, "TMPDIR": str(temporary)}


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
