"""The listening sockets: opened on addresses, or inherited from a service manager."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final

from exporter.errors import ExporterError, UsageError
from exporter.web.hosts import is_loopback

BACKLOG = 256
UNIX: Final = "unix:"
_FIRST_LISTEN_FD: Final = 3
_MOST_INHERITED: Final = 64
_SOCKET_MODE: Final = 0o660
_HINTS = {
    errno.EADDRINUSE: "; another program has it, choose one with --web.listen-address HOST:PORT",
    errno.EACCES: "; ports below 1024 need root, choose one with --web.listen-address",
    errno.EADDRNOTAVAIL: "; this host has no such address",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket."""

    socket: socket.socket
    address: str
    """HOST:PORT or unix:PATH."""
    path: str = ""
    """Of a Unix socket."""
    identity: tuple[int, ...] | None = None
    """Which file its socket file is, if this process has made it."""

    @property
    def loopback(self) -> bool:
        """True if only programs on this host can connect to its port."""
        return not self.path and is_loopback(self.socket.getsockname()[0])

    def remove(self) -> None:
        """Delete the socket file, unless another process has made its own there."""
        if self.identity is not None and _identity(self.path) == self.identity:
            os.unlink(self.path)


def check_listen_address(text: str) -> None:
    """Raise UsageError unless the text is HOST:PORT, :PORT or unix:PATH."""
    if text.startswith(UNIX):
        _unix_path(text)
    else:
        parse_listen_address(text)


def is_local(address: str) -> bool:
    """True if only programs on this host can connect to this address."""
    if address.startswith(UNIX):
        return True
    host, _ = parse_listen_address(address)
    return host == "localhost" or is_loopback(host)


def open_listeners(addresses: Sequence[str]) -> list[Listener]:
    """Return the sockets that a service manager has opened; if there are none, open these."""
    if inherited := inherited_listeners():
        return [_described(each) for each in inherited]
    opened: list[Listener] = []
    try:
        for address in addresses:
            opened.append(_open(address))  # noqa: PERF401 - those before a failure are closed
    except BaseException:
        for listener in opened:
            listener.socket.close()
            listener.remove()
        raise
    return opened


def refuse_taken(addresses: Sequence[str]) -> None:
    """Raise ExporterError if another program has a port, before anything else is begun."""
    for address in addresses:
        if not address.startswith(UNIX):
            open_listener(address).close()


def _open(address: str) -> Listener:
    if address.startswith(UNIX):
        return _open_unix(address)
    return _described(open_listener(address))


def _described(listener: socket.socket) -> Listener:
    if listener.family == socket.AF_UNIX:
        path = str(listener.getsockname())
        return Listener(listener, UNIX + path, path)
    return Listener(listener, format_address(listener))


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


def inherited_listeners(
    environment: MutableMapping[str, str] | None = None, first: int = _FIRST_LISTEN_FD
) -> list[socket.socket]:
    """Return the listening sockets that a service manager opened for this process."""
    variables = os.environ if environment is None else environment
    count = variables.pop("LISTEN_FDS", "")
    meant_for = variables.pop("LISTEN_PID", "")
    variables.pop("LISTEN_FDNAMES", "")
    if meant_for != str(os.getpid()) or not count.isdecimal() or count == "0":
        return []
    if int(count) > _MOST_INHERITED:
        raise ExporterError(f"the service manager opened {count} sockets; that is too many")
    return [_inherited(descriptor) for descriptor in range(first, first + int(count))]


def _inherited(descriptor: int) -> socket.socket:
    try:
        listener = socket.socket(fileno=descriptor)
        accepts = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ExporterError(
            f"the service manager's descriptor {descriptor} is no socket: {error.strerror}"
        ) from error
    if listener.type != socket.SOCK_STREAM or not accepts:
        listener.close()
        raise ExporterError(
            f"the service manager's socket {descriptor} accepts no connections; use ListenStream="
        )
    listener.set_inheritable(False)
    listener.setblocking(False)
    return listener


def _open_unix(text: str) -> Listener:
    """Return a listener whose socket file only its owner and group may connect to."""
    path = _unix_path(text)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        listener.bind(path)
        os.chmod(path, _SOCKET_MODE)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException as error:
        listener.close()
        if not isinstance(error, OSError):
            raise
        raise ExporterError(f"cannot listen on {text}: {error.strerror or error}") from error
    return Listener(listener, text, path, _identity(path))


def _unix_path(text: str) -> str:
    path = text.removeprefix(UNIX)
    if not os.path.isabs(path) or "\0" in path:
        raise UsageError(f"bad listen address {text!r}: expected unix:/an/absolute/path")
    if len(os.fsencode(path)) > 107:  # the kernel's limit
        raise UsageError(f"bad listen address {text!r}: the path is longer than 107 bytes")
    return path


def _remove_stale(path: str) -> None:
    """Remove the socket file of a process that is gone; OSError if the path is in use."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EEXIST, "a file that is no socket is there; choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(path) not in (errno.ECONNREFUSED, errno.ENOENT):
            raise OSError(errno.EADDRINUSE, "another program listens there")
    os.unlink(path)


def _identity(path: str) -> tuple[int, ...] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    # With the time, because the next file may get the same inode.
    return found.st_dev, found.st_ino, found.st_ctime_ns


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
