"""The web configuration: every mistake is one line, and exporter-toolkit's files are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.config.web import read_web_config

TLS = "tls_server_config: {{cert_file: server.crt, key_file: server.key, {}}}"
HASH = "$2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze"

BAD = {
    "tls_server_config: {cert_filse: server.crt}": (
        ":1: tls_server_config.cert_filse: unknown key, did you mean 'cert_file'?"
    ),
    "tls_server_config: {cert_file: '', key_file: server.key}": (
        ": tls_server_config.cert_file: is missing; give cert or cert_file"
    ),
    "tls_server_config: {cert_file: server.crt, key: ''}": (
        ": tls_server_config.key_file: is missing; give key or key_file"
    ),
    "tls_server_config: {min_version: TLS13}": ": tls_server_config.cert_file: is missing",
    TLS.format("client_ca_file: ca.crt"): (
        ": tls_server_config.client_auth_type: is missing; "
        "a client CA needs RequireAndVerifyClientCert"
    ),
    TLS.format("client_ca_file: ca.crt, client_auth_type: NoClientCert"): (
        ": tls_server_config.client_auth_type: a client CA needs RequireAndVerifyClientCert"
    ),
    TLS.format("client_auth_type: RequireAndVerifyClientCerts"): (
        ":1: tls_server_config.client_auth_type: unknown client_auth_type "
        "'RequireAndVerifyClientCerts', did you mean 'RequireAndVerifyClientCert'?"
    ),
    TLS.format("client_auth_type: RequireAnyClientCert"): (
        ": tls_server_config.client_auth_type: RequireAnyClientCert takes any certificate, even "
        "one made by the client itself, and cannot be had here; use RequireAndVerifyClientCert"
    ),
    TLS.format("client_allowed_sans: [a]"): (
        ": tls_server_config.client_allowed_sans: needs client_auth_type RequireAndVerifyClientCert"
    ),
    TLS.format("min_version: TLS111"): (
        ":1: tls_server_config.min_version: unknown TLS version 'TLS111', did you mean 'TLS11'?"
    ),
    TLS.format("min_version: TLS13, max_version: TLS12"): (
        ": tls_server_config.min_version: is above max_version"
    ),
    TLS.format("min_version: TLS10, max_version: TLS11"): (
        ": tls_server_config.max_version: TLS 1.0 and 1.1 are broken and not offered; use TLS12"
    ),
    TLS.format("cipher_suites: [TLS_AES_128_GCM_SHA256], max_version: TLS12"): (
        ": tls_server_config.cipher_suites: has only suites of TLS 1.3, but max_version is TLS12"
    ),
    TLS.format("prefer_server_cipher_suites: maybe"): (
        ":1: tls_server_config.prefer_server_cipher_suites: expected true or false, found 'maybe'"
    ),
    "http_server_config: {headers: {X-Frame-Options: foo}}": (
        ": http_server_config.headers.X-Frame-Options: expected deny or sameorigin, found 'foo'"
    ),
    "http_server_config: {headers: {Content-Type: foo}}": (
        ":1: http_server_config.headers.Content-Type: unknown header 'Content-Type', "
        "did you mean 'X-Content-Type-Options'?"
    ),
    'http_server_config: {headers: {X-XSS-Protection: "1\\r\\nX: y"}}': (
        ":1: http_server_config.headers.X-XSS-Protection: expected printable ASCII in one line"
    ),
    "basic_auth_users: {john: doe}": (
        ":1: basic_auth_users.john: is not a bcrypt hash; "
        "make one with: htpasswd -nBC 10 '' | tr -d ':\\n'"
    ),
    f"basic_auth_users: {{a: {HASH}, a: {HASH}}}": (
        ":1: basic_auth_users.a: given twice, first in line 1"
    ),
    "rate_limit: {interval: 1, burst: 2}": (
        ":1: rate_limit.interval: expected a duration, e.g. 1s, or 0 for no limit, found '1'"
    ),
    "rate_limit: {interval: 1s, burst: -2}": (
        ":1: rate_limit.burst: expected a whole number, e.g. 20, found '-2'"
    ),
    "junk": ":1: expected keys, e.g. 'tls_server_config:', at the top",
}


def read(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "web.yml"
    file.write_text(text)
    return [line.removeprefix(str(file)) for line in read_web_config(str(file))[1]]


@pytest.mark.parametrize(("text", "told"), BAD.items())
def test_a_mistake_is_one_line_that_says_the_fix(tmp_path: Path, text: str, told: str) -> None:
    assert read(tmp_path, text) == [told]


def test_a_password_that_is_not_hashed_is_not_shown(tmp_path: Path) -> None:
    assert "hunter2" not in "".join(read(tmp_path, "basic_auth_users: {ada: hunter2}"))


def test_relative_paths_begin_at_the_file(tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text(TLS.format("client_ca_file: /etc/ca.crt, client_auth_type: RequestClientCert"))
    config, problems = read_web_config(str(file))
    assert problems == []
    tls = config.tls_server_config
    assert tls.cert_file == str(tmp_path / "server.crt")
    assert tls.key_file == str(tmp_path / "server.key")
    assert tls.client_ca_file == "/etc/ca.crt"


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("1s", 1), ("1m30s", 90), ("1.5h", 5400), ("250ms", 0.25)]
)
def test_intervals_are_written_as_in_go(tmp_path: Path, text: str, seconds: float) -> None:
    file = tmp_path / "web.yml"
    file.write_text(f"rate_limit: {{interval: {text}, burst: 20}}")
    config, problems = read_web_config(str(file))
    assert problems == []
    assert config.rate_limit.interval_seconds == pytest.approx(seconds)
