"""The reasons that Hermes writes when it ends a session."""

from __future__ import annotations

from typing import Final

WRITTEN_BY_HERMES: Final = frozenset(
    {
        "agent_close",
        "branched",
        "cli_close",
        "compression",
        "cron_complete",
        "idle_timeout",
        "lru_evict",
        "new_session",
        "orphaned_compression",
        "resumed_other",
        "session_reset",
        "session_switch",
        "tui_close",
        "tui_shutdown",
        "ws_disconnect",
        "ws_orphan_reap",
    }
)
"""Up to 0.19. A client of the API server may send any other."""
