"""The agent is started again and again in the middle of a turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.cli import ask, chat, open_sessions
from tests.real.hermes import NEWEST, python_for
from tests.real.stub_model import ANSWER, StubModel
from tests.real.waiting import wait_until
from tests.support.verdicts import watching

SETTINGS = "mode: enforce, presume_after: {server: 2s, chat: 4s}"
AGENTS = 2


@pytest.mark.parametrize("version", [pytest.param("0.16.0", marks=pytest.mark.full), NEWEST])
def test_the_session_of_a_turn_that_outlasts_agents_is_never_proven_dead_and_heals(
    version: str, model: StubModel, tmp_path: Path
) -> None:
    """For an answer that takes longer than a chat may be silent it is presumed dead, in the end."""
    hermes, home = python_for(version), tmp_path / "home"
    model.configure(home)
    with chat(hermes, home) as window:
        session = window.say("remember the number 4711")
        window.ask_for_ever(model)
        for _ in range(AGENTS):  # and one more below
            with watching(tmp_path / "agent", home, reaper=SETTINGS) as watch:
                watch.scans(1)
            assert watch.ever.keys() <= {session}
            assert not watch.proven
        with watching(tmp_path / "agent", home, reaper=SETTINGS) as watch:
            watch.wait_until_reaped(1)
            assert watch.reaped(proof="presumed") == 1
            model.release.set()
            window.wait_for_prompt()
            wait_until(lambda: watch.reopened() == 1, "it is open again")
            assert not watch.breaker_is_open()
            assert not watch.proven
        assert open_sessions(home) == {session}
        assert window.say("what was the number?") == session
        window.kill()
    said = ask(home, f"SELECT content FROM messages WHERE session_id = '{session}' ORDER BY id")
    assert [each["content"] for each in said][1::2] == ["".join(ANSWER)] * 3
    assert "4711" in said[0]["content"]
