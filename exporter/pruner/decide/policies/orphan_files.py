"""Transcripts and dumps of sessions that were deleted.

A missing row is no proof of that: the database may have been repaired, restored or begun anew, and
then the transcript is the last copy of a conversation. So a file counts only if a run of ours
deleted its session, or the agent saw the row and saw it go. Where many files seem to be orphans,
none is believed to be one. By hand a person may name the last copies too.
"""

from __future__ import annotations

from typing import Final

from exporter.pruner.decide.candidates import Candidate, Finding, Scope, Tally
from exporter.pruner.decide.inventory import Deletion, SessionFile
from exporter.pruner.decide.policies.files import path_of
from exporter.pruner.models import Policy
from exporter.snapshot import DiskKind

_MOST_ORPHANS: Final = 0.2
_DELETED: Final = "its session was deleted; {age} old"
_LAST_COPY: Final = (
    "MAY BE A LAST COPY: its session is not in the database, and no deletion was seen; {age} old"
)


def find(scope: Scope) -> Finding:
    tally = Tally(scope)
    older_than = scope.age_of(scope.settings.policies.orphan_files)
    transcripts = orphans = 0
    for file in scope.inventory.files:
        transcripts += file.kind is DiskKind.TRANSCRIPTS
        if file.session_id is not None or not file.is_surely_hermes:
            continue
        # Not those of our own runs: one that was stopped may have left any number of them.
        orphans += file.kind is DiskKind.TRANSCRIPTS and file.deletion is Deletion.SEEN
        found = Candidate(
            policy=Policy.ORPHAN_FILES,
            clock=file.modified_at,
            reason=_LAST_COPY if file.deletion is Deletion.UNPROVEN else _DELETED,
            files=(file,),
        )
        tally.consider(found, older_than, _kept_by(file, scope))
    if orphans > _MOST_ORPHANS * transcripts and not scope.unproven:
        return Finding(
            candidates=(),
            kept=[("too_many_orphans", each) for each in tally.finding().candidates],
            blocked="too_many_orphans",
            why=f"{orphans} of {transcripts} transcripts lost their session, more than "
            f"{_MOST_ORPHANS:.0%}: something else than Hermes may have deleted them",
        )
    return tally.finding()


def _kept_by(file: SessionFile, scope: Scope) -> str:
    if not file.is_own:
        return "not_own"
    if path_of(file) in scope.protection.restored:
        return "restored"
    if file.deletion is Deletion.UNSETTLED:
        return "unfinished_run"
    if file.deletion is Deletion.UNPROVEN and not scope.unproven:
        return "last_copy"
    return ""
