"""Ways in which living sessions were once taken for dead, with real processes.

The agent presumes nothing in the time of these tests, unless said: what is dead is so by proof.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import psutil
import pytest

from tests.real.api_server import api_server
from tests.real.cli import ask, chat, chat_once, numbered, open_sessions, unanswered_once
from tests.real.faked_time import FakedTime
from tests.real.hermes import NEWEST, Hermes, python_for
from tests.real.holders import Holder
from tests.real.plugin import plugin_in_gateway
from tests.real.stub_model import HANG, LEAVE_TOOL, STREAM, StubModel
from tests.real.terminal import PATIENCE_SECONDS
from tests.real.waiting import wait_until
from tests.support.reaping import hermes_process
from tests.support.verdicts import Watch, a_week_passes, watching

ENFORCE = "mode: enforce"
SELDOM = "4s"
"""Between two scans a process can come, write and go."""


@pytest.fixture
def home(model: StubModel, tmp_path: Path) -> Path:
    home = tmp_path / "home"
    model.configure(home)
    return home


def test_a_chat_that_left_the_session_it_names_keeps_the_one_it_is_on(
    model: StubModel, home: Path, tmp_path: Path
) -> None:
    """`--resume X` and `/new` to Y, while X is open again by another process, and by its name."""
    hermes = python_for(NEWEST)
    named = chat_once(hermes, home)
    with (
        chat(hermes, home, "--resume", named) as window,
        watching(tmp_path / "agent", home, reaper=ENFORCE) as watch,
    ):
        window.new()
        on_screen = window.say()
        once_more = ("chat", "-Q", "--resume", named, "-q")
        assert chat_once(hermes, home, *once_more) == named
        watch.scans(6)
        assert "dead" not in watch.ever[on_screen]
        window.ask_for_ever(model)
        for _ in range(3):  # the one-shots write all the while, and the chat stores nothing
            chat_once(hermes, home, *once_more)
            watch.scans(2)
        assert "dead" not in watch.ever[on_screen]
        assert watch.reaped() == 0
        model.release.set()
        window.wait_for_prompt()
        assert window.say() == on_screen


@pytest.mark.parametrize("named_by", ["command line", "background process"])
def test_a_chat_that_left_the_session_it_names_before_the_agent_began_keeps_the_one_it_is_on(
    named_by: str, home: Path, tmp_path: Path
) -> None:
    """The agent never saw X closed: all that it finds is a chat that names X, and X is open."""
    hermes = python_for(NEWEST)
    resume = ("--resume", chat_once(hermes, home)) if named_by == "command line" else ()
    with chat(hermes, home, *resume) as window:
        if not resume:
            window.say(LEAVE_TOOL)
            wait_until(window.tool_runs, "the tool runs in the background", PATIENCE_SECONDS)
        named = window.session
        window.new()
        on_screen = window.say()
        assert chat_once(hermes, home, "chat", "-Q", "--resume", named, "-q") == named
        with watching(tmp_path / "agent", home, reaper=ENFORCE) as watch:
            keeps_on_screen(watch, on_screen, window.pid)
        assert window.say() == on_screen


def keeps_on_screen(watch: Watch, session: str, pid: int) -> None:
    """The session is idle, and the agent knows that this process may be on it."""
    watch.wait_for("unknown", session)
    watch.scans(6)
    assert "dead" not in watch.ever[session]
    assert watch.names(pid, session)
    assert watch.reaped() == 0


def test_a_chat_that_resumed_a_descendant_keeps_it_and_the_one_it_goes_on_to(
    home: Path, tmp_path: Path
) -> None:
    """`--resume X` lands on a descendant of X, behind one that has ended; X stays open."""
    hermes = python_for(NEWEST)
    named, descendant = chat_once(hermes, home), chat_once(hermes, home)
    between = "20260101_080000_abcdef"
    change(
        home,
        "INSERT INTO sessions (id, source, parent_session_id, started_at, ended_at, end_reason)"
        f" SELECT '{between}', source, id, started_at, started_at, 'cli_close' FROM sessions"
        f" WHERE id = '{named}';"
        f"UPDATE sessions SET parent_session_id = '{between}' WHERE id = '{descendant}'",
    )
    a_week_passes(home)
    with chat(hermes, home, "--resume", named) as window:
        assert window.session == descendant
        with watching(tmp_path / "agent", home, reaper=ENFORCE) as watch:
            watch.scans(6)
            assert "dead" not in watch.ever[descendant]
            window.new()
            on_screen = window.say()
            keeps_on_screen(watch, on_screen, window.pid)
        assert window.say() == on_screen
        assert named in open_sessions(home)


def test_a_chat_that_is_answered_at_length_is_not_taken_for_what_writes_another_session(
    model: StubModel, home: Path, tmp_path: Path
) -> None:
    """Processes come and go on A between two scans; only the chat is seen, and writes all the time.

    What it writes goes to its terminal: of B nothing is stored before the answer is complete.
    """
    hermes = python_for(NEWEST)
    other = chat_once(hermes, home)
    with (
        chat(hermes, home) as window,
        watching(tmp_path / "agent", home, reaper=ENFORCE, scan_interval=SELDOM) as watch,
    ):
        on_screen = window.say()
        window.ask(STREAM)
        for _ in range(6):
            watch.scans(0)
            with hermes_process(hermes, home, "chat", "-q", "hello") as once:
                once.ask("append", session=other)
        watch.scans(0)
        assert "dead" not in watch.ever[on_screen]
        assert watch.reaped() == 0
        model.release.set()
        window.wait_for_prompt()
        assert window.say() == on_screen


def test_a_background_process_that_carries_an_old_session_does_not_tell_what_is_on_screen(
    model: StubModel, home: Path, tmp_path: Path
) -> None:
    """It was begun in X, the chat is on Y since, and X is open again by another process."""
    hermes = python_for(NEWEST)
    with (
        chat(hermes, home) as window,
        watching(tmp_path / "agent", home, reaper=ENFORCE) as watch,
    ):
        old = window.say(LEAVE_TOOL)
        wait_until(window.tool_runs, "the tool runs in the background", PATIENCE_SECONDS)
        carried = [_session_in(each) for each in window.window.descendants()]
        assert old in carried
        window.new()
        on_screen = window.say()
        assert chat_once(hermes, home, "chat", "-Q", "--resume", old, "-q") == old
        wait_until(lambda: watch.verdict(on_screen) == "unknown", "it is idle")
        watch.forget()
        watch.scans(8)
        assert window.tool_runs()
        assert "dead" not in watch.ever[on_screen]
        assert watch.names(window.pid, on_screen)
        assert watch.reaped() == 0
        assert window.say() == on_screen


def _session_in(process: psutil.Process) -> str:
    try:
        return process.environ().get("HERMES_SESSION_ID", "")
    except psutil.Error:
        return ""


@pytest.mark.parametrize("start", [("chat", "-q", ""), ("--resume", "a title")])
def test_a_chat_that_looks_like_another_keeps_what_it_takes_up(
    start: tuple[str, ...], model: StubModel, home: Path, tmp_path: Path
) -> None:
    """An empty query is no one-shot; a title is not the session's id, and nothing is written."""
    hermes = python_for(NEWEST)
    old = chat_once(hermes, home)
    if "--resume" in start:
        set_title(home, old)
    with watching(tmp_path / "agent", home) as watch:
        watch.wait_for("dead", old)
        with chat(hermes, home, *start) as window:
            if window.session != old:
                window.resume(old)
            watch.wait_for("unknown", old)
            watch.forget()
            watch.scans(6)
            assert "dead" not in watch.ever[old]
            assert watch.names(window.pid, old)
            assert window.say() == old


@pytest.mark.parametrize("version", ["0.16.0", pytest.param(NEWEST, marks=pytest.mark.full)])
def test_a_turn_through_the_api_server_is_not_ended(
    version: str, model: StubModel, home: Path, tmp_path: Path
) -> None:
    """Up to 0.16 nothing is stored before the turn ends; `/v1/runs` keeps no connection either."""
    hermes = python_for(version)
    sessions = [chat_once(hermes, home) for _ in range(2)]
    lines = [numbered(HANG) for _ in sessions]
    with (
        api_server(hermes, home) as server,
        watching(tmp_path / "agent", home, reaper=ENFORCE) as watch,
    ):
        turn = server.chat(sessions[0], lines[0])
        server.start_run(sessions[1], lines[1])
        wait_until(
            lambda: set(lines) <= set(model.half_answered), "both turns run", PATIENCE_SECONDS
        )
        watch.scans(8)
        for session in sessions:
            assert "dead" not in watch.ever[session]
            assert watch.names(server.process.pid, session)
        assert watch.reaped() == 0
        model.release.set()
        turn.join(timeout=PATIENCE_SECONDS)
        wait_until(lambda: counts(home) == dict.fromkeys(sessions, 4), "both are stored")
        assert set(sessions) <= open_sessions(home)


def test_a_turn_in_a_thread_of_a_plugin_is_not_ended(
    model: StubModel, home: Path, tmp_path: Path
) -> None:
    """It runs in a gateway, beside which the session would be dead at once but for the plugin."""
    hermes = python_for(NEWEST)
    session = chat_once(hermes, home)
    line = numbered(HANG)
    settings = f"{ENFORCE}, presume_after: {{server: 1s}}"
    with plugin_in_gateway(hermes, home) as plugin:
        plugin.ask("take_up", session=session)
        plugin.ask("begin", words=line)
        wait_until(lambda: line in model.half_answered, "the turn runs", PATIENCE_SECONDS)
        with watching(tmp_path / "agent", home, reaper=settings) as watch:
            keeps_on_screen(watch, session, plugin.pid)
        model.release.set()
        assert plugin.ask("finish") == session
    assert counts(home) == {session: 4}
    assert session in open_sessions(home)


START_GATEWAY = """
import asyncio, threading
from gateway.run import start_gateway
threading.Thread(target=main, daemon=True).start()
asyncio.run(start_gateway())
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("gateway/run.py", marks=pytest.mark.full),
        pytest.param("exporter/__main__.py", marks=pytest.mark.full),
        "both.py",
    ],
)
def test_a_program_that_embeds_hermes_keeps_its_sessions_whatever_it_is_called(
    program: str, model: StubModel, home: Path, tmp_path: Path
) -> None:
    """Beside a server they would be dead at once; one of these programs also runs a gateway."""
    hermes = python_for(NEWEST)
    settings = f"{ENFORCE}, presume_after: {{server: 1s}}"
    with (
        watching(tmp_path / "agent", home, reaper=settings) as watch,
        embedding(hermes, home, tmp_path / program, gateway=program == "both.py") as embedder,
    ):
        session = "20260101_080000_abcdef"
        embedder.ask("take_up", session=session)
        assert embedder.ask("say", words=numbered("hello")) == session
        wait_until(lambda: watch.verdict(session) == "unknown", "it is idle")
        watch.scans(8)
        assert "dead" not in watch.ever[session]
        assert watch.names(embedder.pid, session)
        assert watch.reaped() == 0
        assert embedder.ask("say", words=numbered("hello")) == session


STEPS = (45.0, 3600.0, -3600.0, 0.0)


def test_no_step_of_the_clock_makes_a_session_dead(
    model: StubModel, home: Path, tmp_path: Path
) -> None:
    """Neither one before the agent's start nor those after it, by proof or by presumption."""
    hermes = python_for(NEWEST)
    clock = FakedTime(tmp_path, 45.0)
    settings = f"{ENFORCE}, presume_after: {{server: 10m, chat: 20m}}"
    with (
        unanswered_once(hermes, home, model),
        watching(tmp_path / "agent", home, reaper=settings, environment=clock.environment) as watch,
    ):
        for seconds in STEPS:
            clock.step(seconds)
            watch.scans(4)
        (session,) = watch.ever
        assert "dead" not in watch.ever[session]
        assert watch.reaped() == 0
    with watching(tmp_path / "agent", home, reaper=ENFORCE) as watch:
        watch.wait_until_reaped(1)  # it could be judged: without its process it is dead


@contextmanager
def embedding(hermes: Hermes, home: Path, program: Path, *, gateway: bool) -> Iterator[Holder]:
    """A program of its own that runs agents; see `inside/embed.py`."""
    program.parent.mkdir(exist_ok=True)
    start = START_GATEWAY if gateway else "main()\n"
    # Its own folder comes first on the path, and would hide the package of that name.
    head = "import sys\nsys.path.pop(0)\nfrom tests.real.inside.embed import main\n"
    program.write_text(head + start)
    with (
        TemporaryFile("w+") as errors,
        subprocess.Popen(
            [str(hermes.python), str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=hermes.environment(home),
            cwd=home.parent,
            text=True,
        ) as process,
    ):
        try:
            yield Holder(process, errors)
        finally:
            process.kill()


def set_title(home: Path, session: str) -> None:
    change(home, f"UPDATE sessions SET title = 'a title' WHERE id = '{session}'")


def change(home: Path, sql: str) -> None:
    subprocess.run(["sqlite3", str(home / "state.db"), sql], check=True, timeout=60)


def counts(home: Path) -> dict[str, int]:
    rows = ask(home, "SELECT session_id, COUNT(*) AS n FROM messages GROUP BY session_id")
    return {row["session_id"]: row["n"] for row in rows}
