"""What the policies on files of sessions/ have in common."""

from __future__ import annotations

from exporter.hermes.paths import SESSIONS
from exporter.pruner.decide.inventory import SessionFile


def path_of(file: SessionFile) -> str:
    """Its path below the home."""
    return f"{SESSIONS.decode()}/{file.name}"
