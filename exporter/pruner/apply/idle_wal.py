"""After a run in a home that no process has open, nothing is left in the WAL."""

from __future__ import annotations

from contextlib import suppress

from exporter.errors import DatabaseError
from exporter.pruner.apply.upkeep import is_open_elsewhere
from exporter.writing.target import Target


def empty_wal(target: Target) -> None:
    """Write the WAL back and truncate it, if this run has written to it and no process is there.

    That no process is there was shown by the survey that the run is based on; it is checked again
    by descriptors and locks. Where Hermes is there, the WAL is Hermes's. What fails does no harm.
    """
    if target.wal_growth.size_bytes is None or not target.openers.quiet:
        return
    if is_open_elsewhere(target.database, target.proc):
        return
    with suppress(DatabaseError), target.writing() as writer:
        writer.truncate_wal()
