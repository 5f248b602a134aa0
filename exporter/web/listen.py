"""The listening socket: opened on an address, or inherited from a service manager."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import MutableMapping
from typing import Final

from exporter.errors import ExporterError, UsageError

BACKLOG = 256
_FIRST_LISTEN_FD: Final = 3
_HINTS = {
    errno.EADDRINUSE: "; another program has it, choose one with --web.listen-address HOST:PORT",
    errno.EACCES: "; ports below 1024 need root, choose one with --web.listen-address",
    errno.EADDRNOTAVAIL: "; this host has no such address",
}


def parse_listen_address(text: str) -> tuple[str, int]:
    """Return host and port of `127.0.0.1:10749`, `[::1]:10749`, or `:10749` for all interfaces."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise UsageError(f"bad listen address {text!r}: expected HOST:PORT or :PORT")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise UsageError(f"bad listen address {text!r}: write an IPv6 address as [{host}]:{port}")
    return host, int(port)


def format_address(listener: socket.socket) -> str:
    """Return HOST:PORT of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def inherited_listener(environment: MutableMapping[str, str] | None = None) -> socket.socket | None:
    """Return the listening socket that a service manager opened for this process, if any."""
    variables = os.environ if environment is None else environment
    count = variables.pop("LISTEN_FDS", "")
    meant_for = variables.pop("LISTEN_PID", "")
    variables.pop("LISTEN_FDNAMES", "")
    if meant_for != str(os.getpid()) or not count.isdecimal() or count == "0":
        return None
    if count != "1":
        raise ExporterError(f"the service manager opened {count} sockets; give one ListenStream=")
    listener = socket.socket(fileno=_FIRST_LISTEN_FD)
    listener.set_inheritable(False)
    listener.setblocking(False)
    return listener


def open_listener(text: str) -> socket.socket:
    """Return a bound, listening, non-blocking socket."""
    host, port = parse_listen_address(text)
    try:
        return _listen(host, port) if host else _listen_everywhere(port)
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or 0)
        hint = _HINTS.get(error.errno or 0, "")
        raise ExporterError(f"cannot listen on {text}: {reason}{hint}") from error


def _listen(host: str, port: int) -> socket.socket:
    # As bytes: for text Python would load its tables of international names, one megabyte.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    # A name such as localhost may have both families; scrapers usually ask for the IPv4 address.
    family, address = min(
        ((entry[0], entry[4]) for entry in found), key=lambda pair: pair[0] != socket.AF_INET
    )
    return _bound(family, address)


def _listen_everywhere(port: int) -> socket.socket:
    """One socket for IPv4 and IPv6 where the host has both, so that port 0 becomes one port."""
    if socket.has_dualstack_ipv6():
        try:
            return _bound(socket.AF_INET6, ("::", port))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # compiled in but switched off
                raise
    return _bound(socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 - `:PORT` asks for this


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    # Only a socket that names its protocol gets TCP_NODELAY from asyncio.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != "::")
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
