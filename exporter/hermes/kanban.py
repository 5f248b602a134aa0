"""Kanban boards: which running tasks name a worker process.

Boards live in the root home only, one database each. Whether a worker is alive is for the agent to
find out; a task on another host is not ours to judge.
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
    """The boards' databases, as paths below the home."""
    names = ["kanban.db"] if os.path.lexists(os.path.join(home, "kanban.db")) else []
    boards = os.path.join("kanban", "boards")
    try:
        slugs = sorted(os.listdir(os.path.join(home, boards)))[:_BOARDS_MAX]
    except OSError:
        return names
    paths = [os.path.join(boards, slug, "kanban.db") for slug in slugs]
    return names + [path for path in paths if os.path.lexists(os.path.join(home, path))]


def read_claims(connection: apsw.Connection) -> list[KanbanClaim]:
    """The running tasks of one board that name the process working on them."""
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
