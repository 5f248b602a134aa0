"""A progress bar is for a terminal alone, and never on standard output."""

from __future__ import annotations

import io
import sys

import pytest

from exporter.cli.render.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stderr", [io.StringIO(), None], ids=["pipe", "closed"])
def test_without_a_terminal_nothing_is_drawn(
    stderr: io.StringIO | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress_bar() as tell:
        tell("home", 1, 2)
    assert stderr is None or stderr.getvalue() == ""
    assert capsys.readouterr().out == ""


def test_a_terminal_shows_how_far_each_home_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress_bar() as tell:
        tell("[bold]first", 0, 7)
        tell("second", 1, 3)
        tell("[bold]first", 5, 7)
    drawn = terminal.getvalue()
    assert "[bold]first" in drawn, "the name of a home is text and no markup"
    assert "5/7" in drawn
    assert "1/3" in drawn
    assert capsys.readouterr().out == ""
