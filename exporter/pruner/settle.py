"""Settling what killed runs left open, before anything is planned or chosen.

A run that was killed has left the home between two states: what belongs to it looks like something
else until it is settled, a transcript of a deleted session like an orphan.
"""

from __future__ import annotations

from exporter.pruner.execute import acting
from exporter.pruner.recovery import recover
from exporter.reaper.site import Site
from exporter.runs import journal_of
from exporter.runs.recovery import Recovered


def settle(site: Site) -> Recovered:
    """Settle all that is open; in a process of the home's owner that has no connection to it.

    Raise RunBusyError if another run is under way, RunError if the journal cannot be used.
    """
    with journal_of(site.home, site.owner, site.clock) as journal:
        if journal is None or not journal.unfinished_runs():
            return Recovered()
    with acting(site, "recovery") as (runs, folder):
        return recover(site, runs, folder)
