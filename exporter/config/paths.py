"""Default paths."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from typing import Final

from exporter.errors import UsageError

SYSTEM_STATE_DIR = "/var/lib/hermes-exporter"
SYSTEM_CONFIG_FILE = "/etc/hermes-exporter/config.yml"
"""The configuration that every command reads, except `demo`, if no other is named."""


def default_state_dir(uid: int | None = None, environ: Mapping[str, str] | None = None) -> str:
    """Return the directory for counters, labels and caches.

    It is the system's for root, else the user's own.
    """
    uid = os.geteuid() if uid is None else uid
    environ = os.environ if environ is None else environ
    if uid == 0:
        return SYSTEM_STATE_DIR
    state_home = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state_home):  # the XDG specification says to ignore relative paths
        return os.path.join(state_home, "hermes-exporter")
    home = environ.get("HOME") or _home_of(uid)
    if not os.path.isabs(home):
        raise UsageError(f"user {uid} has no home directory; say where to keep state: --state-dir")
    return os.path.join(home, ".local", "state", "hermes-exporter")


def _home_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return ""


# The socket on which an agent answers commands

SYSTEM_SOCKET: Final = "/run/hermes-exporter/agent.sock"
SOCKET_VARIABLE: Final = "HERMES_EXPORTER_AGENT_SOCKET"
"""The environment variable that names another place, for agents and commands; empty: none."""


def usual_sockets() -> list[str]:
    """Return where an agent may listen that this user can ask: the host's, then the user's own."""
    named = os.environ.get(SOCKET_VARIABLE)
    if named is not None:
        return [named] if named else []
    own = own_socket()
    return list(dict.fromkeys((SYSTEM_SOCKET, own))) if own else [SYSTEM_SOCKET]


def own_socket() -> str | None:
    """Return where an agent of this user listens; None or empty if there is no such place."""
    named = os.environ.get(SOCKET_VARIABLE)
    if named is not None:
        return named
    if os.geteuid() == 0:
        return SYSTEM_SOCKET
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    return os.path.join(folder, "hermes-exporter", "agent.sock") if os.path.isabs(folder) else None
