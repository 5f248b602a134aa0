"""The check of the Host header on a loopback listener, against DNS rebinding.

The attack: a browser on this host shows a page of evil.example. The owner of that name makes it
point to 127.0.0.1. The browser now takes our answers for answers of evil.example, and the page can
read them.

The defence: the browser still sends `Host: evil.example`. So we answer only requests whose Host is
an address or one of this host's own names.
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

        A request without Host is allowed: only HTTP/1.0 clients send one, and no browser is one.
        """
        name = _normal(_without_port(header))
        return not name or name in self._names or _is_address(name)


def names_of_this_host(hosts_file: str = "/etc/hosts") -> set[str]:
    """Return localhost, the host's name, and its aliases; no name server is asked."""
    own = socket.gethostname()
    names = {"localhost", own, own.partition(".")[0]}
    # Not the aliases of localhost: hosts files also list names there to block them.
    return names | _aliases(names - {"localhost"}, hosts_file)


def is_loopback(host: str) -> bool:
    """True for 127.0.0.0/8 and ::1."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)  # 127.0.0.1 in `::ffff:127.0.0.1`
    return (mapped or address).is_loopback


def _aliases(names: set[str], hosts_file: str) -> set[str]:
    """Return all names on the lines that have one of these: `127.0.1.1 web1.example.org web1`."""
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
        ipaddress.ip_address(name.partition("%")[0])  # without the zone: `fe80::1%eth0`
    except ValueError:
        return False
    return True
