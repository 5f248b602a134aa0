"""The rights that an agent needs to start a worker as another user, and to end it again."""

from __future__ import annotations

from typing import Final

_NEEDED: Final = {"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
"""Bits of `CapEff`: to end a worker that has become another user, and to become one."""


def missing_capabilities(status: str = "/proc/self/status") -> tuple[str, ...]:
    """Those that this process lacks; none where the system does not tell."""
    try:
        with open(status, encoding="ascii", errors="replace") as file:
            held = next((line.split()[1] for line in file if line.startswith("CapEff:")), "")
        bits = int(held, 16)
    except (OSError, ValueError, IndexError):
        return ()
    return tuple(name for name, bit in _NEEDED.items() if not bits >> bit & 1)
