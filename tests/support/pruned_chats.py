"""Homes with two old conversations, and a Hermes process that can go on with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.hermes import NEWEST, python_for
from tests.real.holders import Holder
from tests.support.session_pruning import prunable_process

CHAT, OTHER = "20250101_080000_aaaaaa", "20250101_080000_bbbbbb"
COUNT = 8
"""Messages of each."""


@contextmanager
def chat(home: Path, version: str = NEWEST) -> Iterator[Holder]:
    """A process of this release that has the home's database open."""
    with prunable_process(python_for(version), home, module="go_on") as hermes:
        yield hermes


def home_with_chats(version: str, folder: Path, *, with_traces: bool = False) -> Path:
    """Make the home; `with_traces` adds titles, and rows in all tables that may have some."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    with chat(home, version) as hermes:
        for session in (OTHER, CHAT):
            title = {"title": f"title of {session}"} if with_traces else {}
            hermes.ask("old", session=session, count=COUNT, **title)
            if with_traces:
                hermes.ask("leave_traces", session=session)
    return home
