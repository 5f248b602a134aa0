"""What may go, one module for each policy; `POLICIES` is in order of what is safest to lose."""

from __future__ import annotations

from typing import Final

from exporter.pruner.decide.findings import Find
from exporter.pruner.decide.policies import (
    empty_sessions,
    expired_trash,
    old_sessions,
    orphan_checkpoints,
    orphan_files,
    request_dumps,
    stale_checkpoints,
    trivial_sessions,
)
from exporter.pruner.models import Policy, ThresholdName

POLICIES: Final[dict[Policy, Find]] = {
    Policy.EXPIRED_TRASH: expired_trash.find,
    Policy.REQUEST_DUMPS: request_dumps.find,
    Policy.ORPHAN_FILES: orphan_files.find,
    Policy.ORPHAN_CHECKPOINTS: orphan_checkpoints.find,
    Policy.STALE_CHECKPOINTS: stale_checkpoints.find,
    Policy.EMPTY_SESSIONS: empty_sessions.find,
    Policy.TRIVIAL_SESSIONS: trivial_sessions.find,
    Policy.OLD_SESSIONS: old_sessions.find,
}

SESSION_POLICIES: Final = (
    Policy.EMPTY_SESSIONS,
    Policy.TRIVIAL_SESSIONS,
    Policy.OLD_SESSIONS,
)
_CHECKPOINTS: Final = (Policy.ORPHAN_CHECKPOINTS, Policy.STALE_CHECKPOINTS)

LOWERS: Final[dict[ThresholdName, tuple[Policy, ...]]] = {
    ThresholdName.TRANSCRIPTS: (Policy.REQUEST_DUMPS, Policy.ORPHAN_FILES, *SESSION_POLICIES),
    ThresholdName.CHECKPOINTS: _CHECKPOINTS,
    ThresholdName.STATE_DB: SESSION_POLICIES,
    ThresholdName.DISK_USED: (
        Policy.REQUEST_DUMPS,
        Policy.ORPHAN_FILES,
        *_CHECKPOINTS,
    ),
    ThresholdName.EMPTY_SESSIONS: (Policy.EMPTY_SESSIONS,),
}
"""Which policies can lower which threshold. Deleted rows give no block back to the filesystem, so
its threshold never asks for sessions."""
