"""What in the trash may not be purged yet, because a session may still need its past.

A rule that empties the trash waits for it. A person who says `purge` does not.
"""

from __future__ import annotations

from collections.abc import Collection

import apsw
import msgspec

from exporter.errors import DatabaseError
from exporter.hermes import database
from exporter.pruner.gently import read_patiently
from exporter.pruner.words import Act
from exporter.reaper.site import Site
from exporter.runs import ActionState, Runs

_DELETION = Act.DELETE_SESSION.value


def find_reborn(site: Site, session_ids: Collection[str]) -> set[str]:
    """Which of these sessions, all deleted by us, are there."""
    if not session_ids or database.file_state(site.database) is None:
        return set()
    listed = msgspec.json.encode(list(session_ids)).decode()

    def there(connection: apsw.Connection) -> set[str]:
        found = connection.execute(
            "SELECT id FROM sessions WHERE id IN (SELECT value FROM json_each(?))", (listed,)
        )
        return {session_id for (session_id,) in found}

    return read_patiently(site, there)


def why_not_purged(site: Site, runs: Runs, run: str) -> str:
    """Why the trash of a run is not to be emptied by a rule, by what it still may heal; or ''."""
    sessions = {
        each.intent.target
        for each in runs.actions(run)
        if each.intent.action == _DELETION and each.state is ActionState.DONE
    }
    try:
        reborn = find_reborn(site, sessions)
    except DatabaseError as error:
        return f"whether a session of it is there again cannot be told: {error}"[:300]
    return "a session of it is there again, and waits for its past" if reborn else ""
