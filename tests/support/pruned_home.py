"""A home whose old sessions have transcripts, a plan that takes all of it, and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from exporter.pruner.expected import ExpectedFile, as_keys
from exporter.pruner.models import Act, PruneAction, PrunePlan
from exporter.runs.journal import journal_of
from exporter.runs.models import Frees
from tests.real.hermes import Hermes
from tests.support.session_pruning import dump_all, planned, prunable_process

TRASH = ".hermes-exporter/backups/trash"


def session_names(count: int) -> list[str]:
    return [f"20250101_08{number:04}_aaaaaa" for number in range(count)]


def make_home(hermes: Hermes, home: Path, count: int, messages: int = 2) -> Path:
    """Make this many sessions that ended long ago, each with its transcript."""
    home.mkdir(mode=0o700)
    with prunable_process(hermes, home) as writer:
        for session in session_names(count):
            writer.ask("old", session=session, count=messages, title=f"Title of {session}")
    (home / "sessions").mkdir(exist_ok=True)
    for session in session_names(count):
        (home / transcript(session)).write_text(f'{{"session": "{session}"}}')
    return home


def transcript(session: str) -> str:
    return f"sessions/session_{session}.json"


def plan_all(home: Path) -> PrunePlan:
    """Return a plan that takes every session with its transcript."""
    there = sessions(home)
    plan = planned(home, there)
    files = [_transcript_action(home, each) for each in there if (home / transcript(each)).exists()]
    return msgspec.structs.replace(plan, home=str(home), actions=(*plan.actions, *files))


def _transcript_action(home: Path, session: str) -> PruneAction:
    expected = ExpectedFile.of((home / transcript(session)).lstat())
    return PruneAction(
        kind=Act.DELETE_FILE,
        policy="old_sessions",
        target=transcript(session),
        reason="it is old",
        bytes=4096,
        frees=Frees.AT_PURGE,
        expected=as_keys(msgspec.structs.replace(expected, session=session)),
    )


def sessions(home: Path) -> list[str]:
    return sorted(bytes.fromhex(row[2]).decode() for row in dump_all(home)["sessions"])


def transcripts(home: Path) -> list[str]:
    return sorted(path.name[8:-5] for path in (home / "sessions").glob("session_*.json"))


def contents(home: Path) -> dict[str, Any]:
    """Return every row, and every transcript."""
    found = dump_all(home, "word1")
    del found["sqlite_sequence"]
    found["transcripts"] = transcripts(home)
    return found


def unfinished(home: Path) -> list[str]:
    with journal_of(str(home), home.stat().st_uid) as runs:
        return [each.id for each in runs.unfinished_runs()] if runs is not None else []


def targets(skipped: Sequence[Any]) -> list[str]:
    return sorted(each.target for each in skipped)
