"""Settling what killed runs left open, before anything is planned or chosen.

A run that was killed has left the home between two states: what belongs to it looks like something
else until it is settled, a transcript of a deleted session like an orphan.
"""

from __future__ import annotations

from exporter.pruner.apply.execute import acting
from exporter.pruner.apply.recovery import recover
from exporter.runs.folder import run_folder
from exporter.runs.recovery import Recovered
from exporter.writing.target import Target


def settle(target: Target) -> Recovered:
    """Settle all that is open; in a process of the home's owner that has no connection to it.

    Raise RunBusyError if another run is under way, RunError if the journal cannot be used, and
    JournalMendedError if it was damaged: then what can be read of it is in its place.
    """
    with run_folder(target.home, target.owner) as folder:
        if folder is None:  # and none is made to find nothing in it
            return Recovered()
    with acting(target, "recovery") as (runs, folder):
        runs.refuse_damage()
        return recover(target, runs, folder)
