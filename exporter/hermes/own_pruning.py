"""What Hermes prunes by itself, and when it last did. Two pruners must not fight."""

from __future__ import annotations

import os
from typing import Any, Final

import apsw
from msgspec import Struct

from exporter.errors import HomeError
from exporter.hermes.schema import Schema
from exporter.hermes.small_files import read_number, read_small

_CONFIG_BYTES: Final = 1024 * 1024
_INTERVAL_HOURS: Final = 24.0
_CLOCK_MAX: Final = 1e11


class OwnPruning(Struct, frozen=True):
    """Hermes's own pruning of sessions and of checkpoints."""

    sessions_on: bool = False
    """Off unless the home's configuration turns it on.

    This is the default of every release up to 0.19.
    """
    sessions_at: float | None = None
    sessions_interval_seconds: float = _INTERVAL_HOURS * 3600
    checkpoints_on: bool = True
    checkpoints_at: float | None = None
    checkpoints_interval_seconds: float = _INTERVAL_HOURS * 3600

    def has_sessions(self, now: float) -> bool:
        """True if Hermes pruned sessions so recently that there is nothing left for us to prune."""
        return self.sessions_on and _is_fresh(self.sessions_at, self.sessions_interval_seconds, now)

    def has_checkpoints(self, now: float) -> bool:
        return self.checkpoints_on and _is_fresh(
            self.checkpoints_at, self.checkpoints_interval_seconds, now
        )


def _is_fresh(moment: float | None, interval: float, now: float) -> bool:
    return moment is not None and moment <= now < moment + interval


def read_own_pruning(
    home: str, connection: apsw.Connection | None, schema: Schema | None
) -> OwnPruning:
    """Read the home's config.yaml and the times that Hermes notes after each prune."""
    document = _configuration(home)
    sessions = _section(document, "sessions")
    checkpoints = _section(document, "checkpoints")
    marked = None
    if connection is not None and schema is not None and schema.has("state_meta", "key", "value"):
        found = connection.execute(
            "SELECT CAST(value AS REAL) FROM state_meta WHERE key = 'last_auto_prune'"
        ).fetchone()
        marked = found[0] if found else None
    return OwnPruning(
        sessions_on=sessions.get("auto_prune") is True,
        sessions_at=marked if marked is not None and 0 < marked < _CLOCK_MAX else None,
        sessions_interval_seconds=_hours(sessions),
        checkpoints_on=checkpoints.get("auto_prune") is not False,
        checkpoints_at=read_number(os.path.join(home, "checkpoints", ".last_prune")),
        checkpoints_interval_seconds=_hours(checkpoints),
    )


def _configuration(home: str) -> Any:
    try:
        content = read_small(os.path.join(home, "config.yaml"), _CONFIG_BYTES)
    except HomeError:
        return None
    if not content or b"auto_prune" not in content:
        return None
    from exporter.hermes.yaml_document import read_yaml

    try:
        return read_yaml(content)
    except ValueError:
        return None


def _section(document: Any, name: str) -> dict[Any, Any]:
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _hours(section: dict[Any, Any]) -> float:
    found = section.get("min_interval_hours")
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < 10_000:
        return _INTERVAL_HOURS * 3600
    return float(found) * 3600
