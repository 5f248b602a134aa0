"""TLS contexts of the standard library, made from the web configuration."""

from __future__ import annotations

import dataclasses
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from exporter.config.load import without_waiting
from exporter.config.web import CIPHERS, CURVES, TlsServer
from exporter.errors import ConfigError

_VERSIONS = {
    # TLS 1.0 and 1.1 are broken, and OpenSSL 3 refuses them by default: the oldest offered is 1.2.
    "TLS10": ssl.TLSVersion.TLSv1_2,
    "TLS11": ssl.TLSVersion.TLSv1_2,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_GROUPS = {None: 0, "CurveP256": 23, "CurveP384": 24, "CurveP521": 25, "X25519": 29}
"""The numbers of the curves in a ClientHello."""
_MAX_PEM_BYTES = 1 << 20
_SESSIONS_MAX = 256
"""OpenSSL keeps 10 KB for each TLS 1.2 connection that was closed properly, of 20,480 of them, and
the standard library cannot tell it not to. With a new context they are gone.
"""


class CertificateError(ConfigError):
    """The server's certificate or its key cannot be used."""


class TlsContexts:
    """A context for each curve that is preferred, or one for all.

    The standard library can allow one curve or all that OpenSSL knows. To allow some in their
    order, the curve is chosen from what the client offers, and the context with it.
    """

    def __init__(self, tls: TlsServer) -> None:
        self.allowed_sans = frozenset(tls.client_allowed_sans)
        self._tls = _with_files_read(tls)
        self._curves: tuple[str | None, ...] = tls.curve_preferences or (None,)
        self._contexts = {curve: _context(self._tls, curve) for curve in self._curves}

    @property
    def needs_hello(self) -> bool:
        """True if the context depends on what the client offers."""
        return len(self._curves) > 1

    def choose(self, offered_groups: Sequence[int]) -> ssl.SSLContext:
        """Return the context of the first preferred curve that the client offers.

        Without a common curve the handshake fails.
        """
        chosen = next((each for each in self._curves if _GROUPS[each] in offered_groups), None)
        curve = chosen or self._curves[0]
        if self._contexts[curve].session_stats()["number"] > _SESSIONS_MAX:
            self._contexts[curve] = _context(self._tls, curve)
        return self._contexts[curve]

    def allows(self, connection: ssl.SSLObject) -> bool:
        """True if the certificate of the client has an allowed name, or none is asked for."""
        if not self.allowed_sans:
            return True
        certificate = connection.getpeercert()
        if not certificate:
            return True  # none was given, and none is required
        names = cast(Sequence[tuple[str, str]], certificate.get("subjectAltName", ()))
        return any(_san_text(kind, name) in self.allowed_sans for kind, name in names)


def _san_text(kind: str, name: str) -> str:
    """Return the name as exporter-toolkit writes it: an IPv6 address in its short form."""
    if kind != "IP Address":
        return name if kind in ("DNS", "email", "URI") else ""
    import ipaddress

    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return ""


def _context(tls: TlsServer, curve: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    # Every handshake is a full one, so that a certificate is looked at each time: no tickets, and
    # no renegotiation, which would also let a client cause work again and again.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    _set_ciphers(context, tls)
    if curve is not None:
        context.set_ecdh_curve(CURVES[curve])
    _load_certificate(context, tls)
    if tls.verifies_clients:
        context.verify_mode = ssl.CERT_REQUIRED if tls.requires_client else ssl.CERT_OPTIONAL
        _load_client_ca(context, tls)
    return context


def _set_ciphers(context: ssl.SSLContext, tls: TlsServer) -> None:
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    names = [CIPHERS[name] for name in tls.cipher_suites if CIPHERS[name]]
    if names:
        context.set_ciphers(":".join(names))
    elif tls.cipher_suites:  # only suites of TLS 1.3
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def _with_files_read(tls: TlsServer) -> TlsServer:
    """Return the same with the texts of the files in it.

    They are read once, so that all contexts have the same.
    """
    return dataclasses.replace(
        tls,
        cert=_pem("cert", tls.cert_file, tls.cert),
        key=_pem("key", tls.key_file, tls.key),
        client_ca=_pem("client_ca", tls.client_ca_file, tls.client_ca),
    )


def _load_certificate(context: ssl.SSLContext, tls: TlsServer) -> None:
    # The standard library reads certificate and key from files only.
    with _readable_as_file(f"{tls.key.rstrip()}\n{tls.cert}".encode("latin-1", "replace")) as path:
        try:
            context.load_cert_chain(path, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise CertificateError(
                f"{_place('cert', tls.cert_file)} and {_place('key', tls.key_file)}: "
                f"are not a certificate in PEM with its key ({_reason(error)})"
            ) from error


@contextmanager
def _readable_as_file(data: bytes) -> Iterator[str]:
    """Yield a path that reads as this data; in memory where the system can, because of the key."""
    if sys.platform == "linux":
        with open(os.memfd_create("certificate"), "wb") as memory:
            memory.write(data)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name


def _load_client_ca(context: ssl.SSLContext, tls: TlsServer) -> None:
    if not tls.client_ca:
        return  # no client certificate is valid then
    try:
        context.load_verify_locations(cadata=tls.client_ca.encode("ascii", "replace").decode())
    except (ssl.SSLError, ValueError) as error:
        place = _place("client_ca", tls.client_ca_file)
        raise ConfigError(f"{place}: has no CA certificate in PEM ({_reason(error)})") from error


def _pem(key: str, file: str, text: str) -> str:
    if not file:
        return text
    try:
        with open(file, "rb", opener=without_waiting) as stream:
            data = stream.read(_MAX_PEM_BYTES + 1)
    except OSError as error:
        raise _error(key)(f"{_place(key, file)}: cannot be read: {error.strerror}") from error
    if not data or len(data) > _MAX_PEM_BYTES:
        problem = "is empty" if not data else "is larger than 1 MiB"
        raise _error(key)(f"{_place(key, file)}: {problem}")
    return data.decode("latin-1")


def _error(key: str) -> type[ConfigError]:
    return ConfigError if key == "client_ca" else CertificateError


def _place(key: str, file: str) -> str:
    return f"tls_server_config.{key}_file {file}" if file else f"tls_server_config.{key}"


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or type(error).__name__).replace("_", " ").lower()


def _no_password() -> str:
    """Instead of OpenSSL's question on the terminal."""
    raise ValueError("the key is encrypted")
