"""Taking back a reap that was wrong.

A row that still carries exactly the end that a run wrote, and has been active since, belongs to a
living process: it is opened again, and automatic reaping stops until a person has looked. A row
that Hermes opened itself is a resume, which is as it should be.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from exporter import human
from exporter.hermes import database
from exporter.hermes.ending import active_since, end_of, reopen_session
from exporter.hermes.schema import Schema, probe_schema
from exporter.hermes.writing import Writer
from exporter.reaper.batches import recover, take_all, written_end
from exporter.reaper.plan import ACTION
from exporter.reaper.site import Site
from exporter.reaper.undo import reopening, why_not_reopened
from exporter.runs import Action, Kind, journal_of


def heal(site: Site) -> list[str]:
    """Open again what was ended wrongly; return those sessions.

    In a process of the home's owner without a connection. Raise DatabaseError or RunError if the
    home cannot be read or written; what was wrong then still is, and is found the next time.
    """
    with journal_of(site.home, site.owner, site.clock) as journal:
        if journal is None:
            return []
        if not journal.unfinished_runs() and not _find_wrong(site, journal.standing(ACTION)):
            return []
    with site.running("heal") as runs:
        recover(site, runs)
        wrong = _find_wrong(site, runs.standing(ACTION))
        if not wrong:
            return []
        intents = [reopening(each, "it was active after it had been ended") for each in wrong]
        run = runs.begin(Kind.HEAL, intents)
        runs.trip(f"{human.counted(len(wrong), 'session')} active after a reap")
        return list(take_all(site, runs, run, intents, _Healing(wrong)).done)


def _find_wrong(site: Site, reaps: Sequence[Action]) -> list[Action]:
    """Of these reaps those whose sessions have been active since; one for each session."""
    if not reaps or database.file_state(site.database) is None:
        return []
    with site.reading() as connection:
        schema = probe_schema(connection)
        wrong = {each.intent.target: each for each in reaps if _is_wrong(connection, schema, each)}
    return list(wrong.values())


def _is_wrong(connection: apsw.Connection, schema: Schema, reap: Action) -> bool:
    target, end, rows = reap.intent.target, written_end(reap), int(reap.intent.before["rows"])
    if not active_since(connection, schema, target, end, rows):
        return False
    return end_of(connection, target) == end


class _Healing:
    """Opens sessions again that are active; see `exporter.reaper.batches.Change`."""

    def __init__(self, reaps: Sequence[Action]) -> None:
        self._rows = {each.intent.target: int(each.intent.before["rows"]) for each in reaps}
        self._schema: Schema

    def prepare(self, writer: Writer, schema: Schema, batch: Sequence[Action]) -> None:
        del writer, batch
        self._schema = schema

    def check(self, writer: Writer) -> None:
        writer.newcomers()  # whoever came may stay; but nobody may have lost its locks

    def take(self, writer: Writer, action: Action) -> str:
        connection, target, end = writer.connection, action.intent.target, written_end(action)
        if end_of(connection, target) == end and not active_since(
            connection, self._schema, target, end, self._rows[target]
        ):
            return "it is not active after all"
        if reopen_session(connection, target, end):
            return ""
        return why_not_reopened(end_of(connection, target))
