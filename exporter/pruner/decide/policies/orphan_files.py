"""Transcripts and dumps of sessions that were deleted.

A missing row does not prove a deletion: if the database was repaired, restored or made anew, the
transcript may be the last copy of a conversation. So a file counts only if a run of ours deleted
its session, or the agent saw the row and later saw that it was gone. If many files seem to be
orphans, the policy takes none. By hand, `--unproven` takes possible last copies too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from exporter.config.prune import ThresholdName
from exporter.hermes.prunable_names import is_session_file
from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import Deletion, SessionFile
from exporter.pruner.decide.items import ItemGroup, session_file_item
from exporter.pruner.decide.policy import Policy
from exporter.snapshot import DiskKind
from exporter.text import format_count

_MOST_ORPHANS: Final = 0.2
_TOO_MANY: Final = "too_many_orphans"
_DELETED: Final = "its session was deleted; {age} old"
_LAST_COPY: Final = (
    "MAY BE A LAST COPY: its session is not in the database, and no deletion was seen; {age} old"
)


def find(scope: Scope, policy: Policy) -> Finding:
    found = FindingBuilder(scope, policy.name)
    transcripts = orphans = 0
    for file in scope.inventory.files:
        transcripts += file.kind is DiskKind.TRANSCRIPTS
        if file.session_id is not None or not file.is_surely_hermes:
            continue
        # Orphans of our own runs do not count: a killed run may leave any number of them.
        orphans += file.kind is DiskKind.TRANSCRIPTS and file.deletion is Deletion.SEEN
        found.consider(
            session_file_item(file),
            clock=file.modified_at,
            reason=_LAST_COPY if file.deletion is Deletion.UNPROVEN else _DELETED,
            kept_by=_kept_by(file, scope),
        )
    if orphans > _MOST_ORPHANS * transcripts and not scope.unproven:
        return Finding(
            groups=(),
            kept=[(_TOO_MANY, each) for each in found.finding().groups],
            blocked=_TOO_MANY,
            why=f"{orphans} of {transcripts} transcripts lost their session, more than "
            f"{_MOST_ORPHANS:.0%}: something else than Hermes may have deleted them",
        )
    return found.finding()


def _kept_by(file: SessionFile, scope: Scope) -> str:
    kept = scope.keeps_file(file)
    if kept:
        return kept
    if file.deletion is Deletion.UNSETTLED:
        return "unfinished_run"
    if file.deletion is Deletion.UNPROVEN and not scope.unproven:
        return "last_copy"
    return ""


def warn(chosen: Iterable[ItemGroup]) -> Iterator[str]:
    """Warn of files whose deletion was not seen."""
    copies = sum(each.reason == _LAST_COPY for each in chosen)
    if copies:
        yield (
            f"{format_count(copies)} of these files may be the last copies of conversations: their "
            "sessions are not in the database, which may have been restored from a backup. They "
            "wait in the trash, and `undo` gives them back until it is emptied"
        )


POLICY = Policy(
    name="orphan_files",
    find=find,
    lowers=(ThresholdName.TRANSCRIPTS, ThresholdName.DISK_USED),
    names=is_session_file,
    in_the_way=(_TOO_MANY,),
    warn=warn,
)
