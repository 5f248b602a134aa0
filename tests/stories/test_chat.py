"""Real `hermes chat` processes against a model on loopback, and what they leave behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.real.agent import agent
from tests.real.counts import Database
from tests.real.hermes import NEWEST, python_for
from tests.real.stub_model import ANSWER, HANG, stub_model


def test_a_finished_chat_leaves_its_session_open(tmp_path: Path) -> None:
    """A one-shot chat that ended well never ends its session: the leak this project is about."""
    hermes = python_for(NEWEST)
    home = tmp_path / "home"
    with stub_model() as model:
        model.configure(home)
        done = subprocess.run(
            [hermes.python, hermes.program, "chat", "-Q", "-q", "hi"],
            env=hermes.environment(home),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert "".join(ANSWER) in done.stdout
    with agent(tmp_path, [home]) as running:
        metrics = running.metrics()
    assert metrics.by("hermes_sessions_open", "source")["cli",] == 1
    assert metrics.by("hermes_messages_total", "source")["cli",] == 2
    assert metrics.by("hermes_tokens_total", "model", "kind")["stub-1", "input"] == 11


def test_a_chat_killed_while_it_is_answered_has_the_question_last(tmp_path: Path) -> None:
    hermes = python_for(NEWEST)
    home = tmp_path / "home"
    with stub_model() as model:
        model.configure(home)
        with subprocess.Popen(
            [hermes.python, hermes.program, "chat", "-Q", "-q", HANG],
            env=hermes.environment(home),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as chat:
            asked = model.hanging.wait(120)
            chat.kill()
    assert asked, "the model was never asked"
    last = Database(home / "state.db", tmp_path).rows(
        "SELECT m.role, s.ended_at FROM messages m JOIN sessions s ON s.id = m.session_id "
        "ORDER BY m.id DESC LIMIT 1"
    )
    assert last == [{"role": "user", "ended_at": None}]
