"""The web configuration file: TLS, client certificates, users, headers and a rate limit.

The format is that of Prometheus's exporter-toolkit, so the file of a node_exporter works as it is:
the same keys, and the same files are refused. Where the standard library cannot do what the toolkit
does, the file is refused with a line that says so: a demand is never dropped silently.

What only the other files can show (a key that does not fit its certificate) is found by
`exporter.web.tls_context`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping

from exporter.config.load import read_settings
from exporter.config.table import list_of, named_values, nested, setting, settings
from exporter.config.units import SWITCH, Unit, choice
from exporter.text import quoted

CIPHERS: Mapping[str, str] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
"""The toolkit's names and OpenSSL's. TLS 1.3 has its own suites, which no file can change."""
CURVES: Mapping[str, str] = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
_FOR_HTTP2 = (
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
)
_VERIFYING = ("VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
_ANY_CERTIFICATE = ("RequireAnyClientCert", "RequireClientCert")
_AUTH_TYPES = ("NoClientCert", "RequestClientCert", *_ANY_CERTIFICATE, *_VERIFYING)
_AUTH_TYPE = choice("client_auth_type", _AUTH_TYPES)
_VERSIONS = ("TLS10", "TLS11", "TLS12", "TLS13")
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
}
"""The headers that can be set, each with its only values if it has such."""
_BCRYPT = re.compile(r"\$2[abxy]?\$([0-9]{2})\$[./A-Za-z0-9]{53}", re.ASCII)
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?(?:ns|us|µs|ms|s|m|h))+", re.ASCII)
_DURATION_PART = re.compile(r"([0-9.]+)([a-zµ]+)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def _parse_hash(text: str) -> str:
    match = _BCRYPT.fullmatch(text)
    if match is None or not 4 <= int(match[1]) <= 31:
        # The value is not shown: it may be the password itself.
        raise ValueError("is not a bcrypt hash; make one with: htpasswd -nBC 10 '' | tr -d ':\\n'")
    return text


def _parse_interval(text: str) -> float:
    if text == "0":
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError(f"expected a duration, e.g. 1s, or 0 for no limit, found {quoted(text)}")
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


def _parse_burst(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ValueError(f"expected a whole number, e.g. 20, found {quoted(text)}")
    return int(text)


def _parse_header_value(text: str) -> str:
    if not (text.isascii() and text.isprintable()):
        raise ValueError("expected printable ASCII in one line")
    return text


def _parse_auth_type(text: str) -> str:
    return _AUTH_TYPE.parse(text) if text else ""


def _parse_user(text: str) -> str:
    if ":" in text:
        raise ValueError("a user name has no colon: the browser could not send it")
    return text


TEXT = Unit("text", str)
HEADER = choice("header", tuple(_HEADERS))


@settings
class TlsServer:
    """`tls_server_config`; the paths are absolute."""

    cert: str = setting(TEXT, "", "certificate, PEM; a file counts before a text")
    key: str = setting(TEXT, "", "its key, PEM")
    client_ca: str = setting(TEXT, "", "CA of the client certificates, PEM")
    cert_file: str = setting(TEXT, "", "file with the certificate and its chain")
    key_file: str = setting(TEXT, "", "file with its key")
    client_auth_type: str = setting(
        Unit("policy", _parse_auth_type), "", "what is asked of client certificates"
    )
    client_ca_file: str = setting(TEXT, "", "file with the CA of the client certificates")
    client_allowed_sans: tuple[str, ...] = list_of(TEXT, (), "one of these must be in it")
    min_version: str = setting(choice("TLS version", _VERSIONS), "TLS12", "oldest TLS version")
    max_version: str = setting(choice("TLS version", _VERSIONS), "TLS13", "newest TLS version")
    cipher_suites: tuple[str, ...] = list_of(
        choice("cipher", tuple(CIPHERS)), (), "suites of TLS 1.2"
    )
    prefer_server_cipher_suites: bool = setting(SWITCH, "true", "the server's order counts")
    curve_preferences: tuple[str, ...] = list_of(
        choice("curve", tuple(CURVES)), (), "curves in the order of preference"
    )

    @property
    def enabled(self) -> bool:
        """True if the file asks for TLS."""
        return bool(
            self.cert or self.key or self.client_ca or self.cert_file or self.key_file
            or self.client_ca_file or self.client_auth_type
        )  # fmt: skip

    @property
    def verifies_clients(self) -> bool:
        """True if a client certificate that is given must be valid."""
        return self.client_auth_type in _VERIFYING

    @property
    def requires_client(self) -> bool:
        """True if a client without a valid certificate is refused."""
        return self.client_auth_type == "RequireAndVerifyClientCert"


@settings
class HttpServer:
    """`http_server_config`."""

    http2: bool = setting(SWITCH, "true", "accepted; the agent speaks HTTP/1.1 in either case")
    headers: Mapping[str, str] = named_values(
        HEADER, Unit("value", _parse_header_value), "headers of every response"
    )


@settings
class RateLimit:
    """`rate_limit`: a token bucket for all requests together."""

    interval_seconds: float = setting(Unit("duration", _parse_interval), "0", "between requests")
    burst: int = setting(Unit("count", _parse_burst), "0", "requests at once")


@settings
class WebConfig:
    """The whole file."""

    tls_server_config: TlsServer = nested(TlsServer, "TLS")
    http_server_config: HttpServer = nested(HttpServer, "HTTP")
    basic_auth_users: Mapping[str, str] = named_values(
        Unit("user", _parse_user), Unit("bcrypt hash", _parse_hash), "users and their passwords"
    )
    rate_limit: RateLimit = nested(RateLimit, "limit of requests")


def read_web_config(path: str) -> tuple[WebConfig, list[str]]:
    """Return the file's settings and its problems; with a problem, do not use the settings."""
    config, problems = read_settings(path, WebConfig, "--web.config.file", "tls_server_config:")
    if not problems:
        config = _with_absolute_paths(config, os.path.dirname(os.path.abspath(path)))
        problems = [f"{path}: {problem}" for problem in _misfits(config)]
    return config, problems


def _with_absolute_paths(config: WebConfig, folder: str) -> WebConfig:
    tls = config.tls_server_config

    def absolute(path: str) -> str:
        return os.path.join(folder, path) if path else ""

    tls = dataclasses.replace(
        tls,
        cert_file=absolute(tls.cert_file),
        key_file=absolute(tls.key_file),
        client_ca_file=absolute(tls.client_ca_file),
    )
    return dataclasses.replace(config, tls_server_config=tls)


def _misfits(config: WebConfig) -> list[str]:
    """Return what is wrong between values that are right by themselves."""
    problems = []
    for name, value in config.http_server_config.headers.items():
        if (words := _HEADERS[name]) and value not in words:
            expected = " or ".join(words)
            problems.append(
                f"http_server_config.headers.{name}: expected {expected}, found {quoted(value)}"
            )
    if config.tls_server_config.enabled:
        problems += [
            f"tls_server_config.{problem}"
            for problem in _tls_misfits(config.tls_server_config, config.http_server_config.http2)
        ]
    elif config.tls_server_config != TlsServer():
        problems.append("tls_server_config.cert_file: is missing")
    return problems


def _tls_misfits(tls: TlsServer, http2: bool) -> list[str]:
    problems = []
    for inline, file in (("cert", "cert_file"), ("key", "key_file")):
        if not (getattr(tls, inline) or getattr(tls, file)):
            problems.append(f"{file}: is missing; give {inline} or {file}")
    if tls.client_auth_type in _ANY_CERTIFICATE:
        # Python's ssl module verifies every client certificate that it asks for.
        problems.append(
            f"client_auth_type: {tls.client_auth_type} takes any certificate, even one made by the "
            "client itself, and cannot be had here; use RequireAndVerifyClientCert"
        )
    elif (tls.client_ca or tls.client_ca_file) and not tls.client_auth_type:
        problems.append(
            "client_auth_type: is missing; a client CA needs RequireAndVerifyClientCert"
        )
    elif (tls.client_ca or tls.client_ca_file) and tls.client_auth_type == "NoClientCert":
        problems.append("client_auth_type: a client CA needs RequireAndVerifyClientCert")
    elif tls.client_allowed_sans and not tls.verifies_clients:
        problems.append("client_allowed_sans: needs client_auth_type RequireAndVerifyClientCert")
    if _VERSIONS.index(tls.min_version) > _VERSIONS.index(tls.max_version):
        problems.append("min_version: is above max_version")
    if tls.max_version in ("TLS10", "TLS11"):
        problems.append("max_version: TLS 1.0 and 1.1 are broken and not offered; use TLS12")
    if tls.cipher_suites:
        problems += _cipher_misfits(tls, http2)
    return problems


def _cipher_misfits(tls: TlsServer, http2: bool) -> list[str]:
    if tls.max_version == "TLS12" and not any(CIPHERS[name] for name in tls.cipher_suites):
        return ["cipher_suites: has only suites of TLS 1.3, but max_version is TLS12"]
    if http2 and tls.min_version != "TLS13" and not set(tls.cipher_suites) & set(_FOR_HTTP2):
        needed = " or ".join(_FOR_HTTP2)
        fix = "add one, or set http_server_config.http2: false"
        return [f"cipher_suites: HTTP/2 needs {needed}; {fix}"]
    return []
