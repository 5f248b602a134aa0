"""Hermes may delete ended sessions by itself, by their start: what that means for a presumption."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.cli import ask, chat, chat_once
from tests.real.hermes import python_for
from tests.real.stub_model import stub_model
from tests.support.home_scans import sql
from tests.support.verdicts import PRESUME, leak, watching

OLD_DAYS = 100


@pytest.mark.parametrize("version", ["0.13.0", "0.19.0"])
def test_an_old_chat_on_screen_is_not_ended_where_hermes_would_then_delete_it(
    version: str, tmp_path: Path
) -> None:
    hermes, home = python_for(version), tmp_path / "home"
    with stub_model() as model:
        model.configure(home, sessions={"auto_prune": True})
        with chat(hermes, home) as window:
            old = window.say("remember the number 4711")
            sql(
                home,
                f"UPDATE sessions SET started_at = started_at - {OLD_DAYS * 86400};"
                "UPDATE messages SET timestamp = timestamp - 4 * 86400;",
            )
            young = leak(hermes, home, model, "idle")["idle"]
            with watching(tmp_path / "agent", home, reaper=f"mode: enforce, {PRESUME}") as watch:
                watch.wait_until_reaped(1)  # the young one, beside the same chat
                watch.scans()
                assert watch.verdict(young) is None
                assert watch.verdict(old) == "unknown"
                (said,) = [detail for kind, detail in watch.evidence(old) if kind == "chat"]
                assert "sessions.auto_prune" in said
                sql(home, "DELETE FROM state_meta WHERE key = 'last_auto_prune'")
                chat_once(hermes, home)  # a Hermes that starts deletes what has ended
                assert window.say("what was the number?") == old
            window.kill()
        assert ask(home, "SELECT 1 AS found FROM messages WHERE content LIKE '%4711%'")
