"""Kanban boards: the running tasks that name a worker process.

Boards are in the root home only, one database each. This module does not judge: the agent finds out
if a worker is alive, and skips tasks of other hosts.
"""

from __future__ import annotations

import os
from typing import Final

import apsw

from exporter.hermes.schema import columns_of
from exporter.hermes.utf8 import rows_in_utf8
from exporter.snapshot import KanbanClaim

_BOARDS_MAX: Final = 16
_CLAIMS_MAX: Final = 512


def board_names(home: str) -> list[str]:
    """Return the paths of the boards' databases, relative to the home."""
    names = ["kanban.db"] if os.path.lexists(os.path.join(home, "kanban.db")) else []
    boards = os.path.join("kanban", "boards")
    try:
        slugs = sorted(os.listdir(os.path.join(home, boards)))[:_BOARDS_MAX]
    except OSError:
        return names
    paths = [os.path.join(boards, slug, "kanban.db") for slug in slugs]
    return names + [path for path in paths if os.path.lexists(os.path.join(home, path))]


def read_claims(connection: apsw.Connection) -> list[KanbanClaim]:
    """Return the running tasks of one board that name their worker process."""
    columns = columns_of(connection, "tasks")
    if not columns.issuperset({"status", "worker_pid"}):
        return []
    lock = "claim_lock" if "claim_lock" in columns else "''"
    started = "started_at" if "started_at" in columns else "0"
    rows, _ = rows_in_utf8(
        connection,
        f"SELECT CAST(worker_pid AS INTEGER), substr(CAST(COALESCE({lock}, '') AS TEXT), 1, 128), "
        f"CAST(COALESCE({started}, 0) AS REAL) FROM tasks "
        f"WHERE status = 'running' AND worker_pid IS NOT NULL LIMIT {_CLAIMS_MAX}",
    )
    return [
        KanbanClaim(pid=pid, host=claim.rpartition(":")[0], started_at=min(max(began, 0.0), 1e11))
        for pid, claim, began in rows
        if 0 < pid < 2**31
    ]
