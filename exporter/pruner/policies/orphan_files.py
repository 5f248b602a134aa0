"""Transcripts and dumps of sessions that the database does not have.

A missing row is no proof that a session was deleted: the database may have been repaired, restored
or begun anew, and then the transcript is all that is left. So a file counts only if the database
is known to cover its time, and where many files seem to be orphans, none is believed to be one.
"""

from __future__ import annotations

from typing import Final

from exporter.pruner.candidates import Candidate, Finding, Scope, Tally
from exporter.pruner.inventory import SessionFile
from exporter.pruner.policies.files import path_of
from exporter.pruner.words import Policy
from exporter.snapshot import DiskKind

_MOST_ORPHANS: Final = 0.2


def find(scope: Scope) -> Finding:
    tally = Tally(scope)
    older_than = scope.age_of(scope.settings.policies.orphan_files)
    transcripts = orphans = 0
    for file in scope.inventory.files:
        transcripts += file.kind is DiskKind.TRANSCRIPTS
        if file.session_id is not None or not file.is_surely_hermes:
            continue
        orphans += file.kind is DiskKind.TRANSCRIPTS
        found = Candidate(
            policy=Policy.ORPHAN_FILES,
            clock=file.modified_at,
            reason="its session is not in the database; {age} old",
            files=(file,),
            is_garbage=True,
        )
        tally.consider(found, older_than, _kept_by(file, scope))
    if orphans > _MOST_ORPHANS * transcripts:
        return Finding(
            candidates=(),
            kept=[("too_many_orphans", each) for each in tally.finding().candidates],
            blocked="too_many_orphans",
            why=f"{orphans} of {transcripts} transcripts have no session, more than "
            f"{_MOST_ORPHANS:.0%}: the database may have lost them",
        )
    return tally.finding()


def _kept_by(file: SessionFile, scope: Scope) -> str:
    if not file.is_own:
        return "not_own"
    if path_of(file) in scope.protection.restored:
        return "restored"
    return "" if scope.inventory.coverage.covers(file) else "not_covered"
