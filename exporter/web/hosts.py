"""The check of the Host header on a loopback listener, against DNS rebinding.

A page in a browser on this host may have a name that its owner lets point to 127.0.0.1. To the
browser our answers would then be that page's own, and it could read them. But the browser sends the
name as Host. So a request must name this host by an address or by one of its own names.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

_MAX_HOSTS_BYTES = 1 << 20


class AllowedHosts:
    """The names by which a loopback listener may be asked."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(_normal(name) for name in names)

    def allows(self, header: str) -> bool:
        """True for an address, and for an allowed name; with or without a port.

        Only an HTTP/1.0 client sends no Host, and no browser is one.
        """
        name = _normal(_without_port(header))
        return not name or name in self._names or _is_address(name)


def names_of_this_host(hosts_file: str = "/etc/hosts") -> set[str]:
    """Return localhost, the host's name, and its aliases; no name server is asked."""
    own = socket.gethostname()
    names = {"localhost", own, own.partition(".")[0]}
    return names | _aliases(names - {"localhost"}, hosts_file)


def is_loopback(host: str) -> bool:
    """True for 127.0.0.0/8 and ::1."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _aliases(names: set[str], hosts_file: str) -> set[str]:
    """Return the names beside these: such a line is `127.0.1.1 web1.example.org web1`."""
    try:
        with open(hosts_file, encoding="utf-8", errors="replace") as file:
            lines = file.read(_MAX_HOSTS_BYTES).splitlines()
    except OSError:
        return set()
    found: set[str] = set()
    for line in lines:
        _, *listed = line.partition("#")[0].split() or [""]
        if names & set(listed):
            found.update(listed)
    return found


def _without_port(header: str) -> str:
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0]


def _normal(name: str) -> str:
    return name.strip().lower().removesuffix(".").removeprefix("[").removesuffix("]")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
