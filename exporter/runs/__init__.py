"""Runs: what hermes-exporter does to a home, one run at a time, noted so that it can be undone."""

from exporter.runs.folder import RunBusyError, RunError, RunFullError, run_folder
from exporter.runs.journal import Runs, journal_of, journal_was_lost, new_run_id, running
from exporter.runs.models import (
    Action,
    ActionState,
    Fate,
    Intent,
    Kind,
    Reversal,
    Run,
    RunOutcome,
    Settlement,
    Trip,
    intended,
)

__all__ = [
    "Action",
    "ActionState",
    "Fate",
    "Intent",
    "Kind",
    "Reversal",
    "Run",
    "RunBusyError",
    "RunError",
    "RunFullError",
    "RunOutcome",
    "Runs",
    "Settlement",
    "Trip",
    "intended",
    "journal_of",
    "journal_was_lost",
    "new_run_id",
    "run_folder",
    "running",
]
