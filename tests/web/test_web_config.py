"""The web configuration of a running agent is followed, and never opens what was closed."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from exporter.errors import ConfigError
from exporter.web.web_config import WebConfigFile, load_web_config
from tests.support.certificates import Authority

ALICE = "alice: $2y$10$mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze"
BOB = "bob: $2y$10$hLqFl9jSjoAAy95Z/zw8Ye8wkdMBM8c5Bn1ptYqP/AXyV0.oy0S8m"
TLS = "tls_server_config: {cert_file: server.crt, key_file: server.key%s}\n"
REQUIRED = ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: authority.crt"
ALL_CIPHERS = (
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "
    "TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256, "
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, "
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"
)
TWO_CIPHERS = (
    "cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]"
)
ONE_CIPHER = ", max_version: TLS12, cipher_suites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]"

GOOD = {
    "the documented sample": TLS % ""
    + f'basic_auth_users:\n  {ALICE}\n  {BOB}\nrate_limit:\n  interval: "1s"\n  burst: 20\n',
    "the minimal sample": TLS % "",
    "an empty file": "",
    "verify if given, without a CA": TLS % ", client_auth_type: VerifyClientCertIfGiven",
    "require and verify": TLS % REQUIRED,
    "require and verify, without a CA": TLS % ", client_auth_type: RequireAndVerifyClientCert",
    "allowed names": TLS % (REQUIRED + ", client_allowed_sans: [one, test3, two]"),
    "requested only": TLS % ", client_auth_type: RequestClientCert",
    "no client certificate": TLS % ", client_auth_type: NoClientCert",
    "all ciphers": TLS % f", cipher_suites: [{ALL_CIPHERS}]",
    "all curves": TLS % ", curve_preferences: [CurveP256, CurveP384, CurveP521, X25519]",
    "some curves": TLS % ", min_version: TLS13, curve_preferences: [CurveP521]",
    "no HTTP/2": TLS % ONE_CIPHER + "http_server_config: {http2: false}\n",
    "some ciphers": TLS % f", {TWO_CIPHERS}, min_version: TLS12, max_version: TLS12",
    "some ciphers in any order": TLS
    % f", {TWO_CIPHERS}, prefer_server_cipher_suites: false, max_version: TLS12",
    "the client's order": TLS % ", prefer_server_cipher_suites: false, min_version: TLS12",
    "old versions": TLS % ", min_version: TLS10",
    "headers": """\
http_server_config:
  headers:
    X-Frame-Options: deny
    Strict-Transport-Security: max-age=31536000; includeSubDomains
    X-Content-Type-Options: nosniff
    X-XSS-Protection: 1
    Content-Security-Policy: "default-src 'self' *.test.example.net"
""",
    "no limit": "rate_limit: {interval: 0, burst: 0}",
    "users without TLS": f"basic_auth_users: {{{ALICE}}}",
    "users of any cost": "basic_auth_users:\n"
    "  alice: $2y$12$1DpfPeqF9HzHJt.EWswy1exHluGfbhnn3yXhR7Xes6m3WJqFg0Wby\n"
    "  bob: $2y$18$4VeFDzXIoPHKnKTU3O3GH.N.vZu06CVqczYZ8WvfzrddFU6tGqjR.",
    "a limit that lets none in": "rate_limit: {interval: 1s, burst: 0}",
}
"""Files of the shapes in exporter-toolkit's documentation and tests that it accepts."""
REFUSED_HERE = {
    "any certificate": (TLS % ", client_auth_type: RequireAnyClientCert", "takes any certificate"),
    "any, by its old name": (TLS % ", client_auth_type: RequireClientCert", "takes any"),
    "any, with the key in the file": (
        TLS.replace("key_file", "key") % ", client_auth_type: RequireAnyClientCert",
        "takes any certificate",
    ),
    "names that are not checked": (TLS % ", client_allowed_sans: [a]", "needs client_auth_type"),
    "TLS without a certificate": ("tls_server_config: {min_version: TLS13}", "is missing"),
    "only broken versions": (TLS % ", min_version: TLS10, max_version: TLS11", "are broken"),
    "no version at all": (TLS % ", min_version: TLS13, max_version: TLS12", "above max_version"),
    "no cipher of this version": (
        TLS % ", cipher_suites: [TLS_AES_128_GCM_SHA256], max_version: TLS12",
        "only suites of TLS 1.3",
    ),
    "an interval without a unit": ("rate_limit: {interval: 1, burst: 2}", "expected a duration"),
    "an alias": (f"basic_auth_users: {{{ALICE.replace(': ', ': &a ')}, bob: *a}}", "anchors"),
}
"""Files that it accepts and that are refused here; docs/security.md names each."""
BAD = {
    "no file at all": (None, "cannot be read"),
    "junk": ("hWkNKCp3fvIx3jKnsaBI\nTuEjdwNS8A2vYdFbiKqr\n", "expected keys"),
    "an unknown key": ("tls_server_config: {cert_filse: server.crt}", "did you mean 'cert_file'"),
    "no certificate": ("tls_server_config: {cert_file: '', key_file: server.key}", "is missing"),
    "no text of one": ("tls_server_config: {cert: '', key_file: server.key}", "is missing"),
    "no key": ("tls_server_config: {cert_file: server.crt, key_file: ''}", "is missing"),
    "no text of a key": ("tls_server_config: {cert_file: server.crt, key: ''}", "is missing"),
    "neither": ("tls_server_config: {cert_file: '', key_file: '', client_auth_type: x}", "x"),
    "no such certificate": ("tls_server_config: {cert_file: a, key_file: server.key}", "No such"),
    "no such key": ("tls_server_config: {cert_file: server.crt, key_file: a}", "No such file"),
    "neither file": ("tls_server_config: {cert_file: a, key_file: a}", "No such file"),
    "no such CA, and no policy": (TLS % ", client_ca_file: a", "client_auth_type: is missing"),
    "no such CA": (TLS % (REQUIRED.replace("authority.crt", "a")), "No such file"),
    "a CA without a policy": (TLS % ", client_ca_file: /dev/null", "client_auth_type: is missing"),
    "an unknown policy": (TLS % ", client_auth_type: x", "unknown client_auth_type"),
    "a plain password": (TLS % "" + "basic_auth_users: {john: doe}", "not a bcrypt hash"),
    "an invented cipher": (TLS % ", cipher_suites: [TLS_X_SHA2048]", "unknown cipher"),
    "an invented curve": (TLS % ", curve_preferences: [CurveP257]", "unknown curve"),
    "an invented version": (TLS % ", min_version: TLS111", "unknown TLS version"),
    "no cipher for HTTP/2": (TLS % ONE_CIPHER, "HTTP/2 needs"),
    "another header": ("http_server_config: {headers: {Content-Type: foo}}", "unknown header"),
    "a wrong value": ("http_server_config: {headers: {X-Frame-Options: foo}}", "expected deny"),
    "another wrong value": (
        "http_server_config: {headers: {X-Content-Type-Options: sniff}}",
        "expected nosniff",
    ),
    "a key of another": (TLS.replace("server.key", "other.key") % "", "with its key"),
    "a CA that is none": (TLS % (REQUIRED.replace("authority.crt", "server.key")), "no CA"),
}
"""Files that it refuses; the last two it takes, and then refuses every client."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    authority = Authority(folder)
    for name in ("server", "other"):
        authority.issue(name, "DNS:localhost,IP:127.0.0.1")
    return folder


@pytest.fixture
def folder(pairs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pairs, tmp_path / "etc"))


@pytest.mark.parametrize("name", GOOD)
def test_what_exporter_toolkit_accepts_is_accepted(folder: Path, name: str) -> None:
    write(folder, GOOD[name])
    load_web_config(str(folder / "web.yml"))


@pytest.mark.parametrize("name", [*BAD, *REFUSED_HERE])
def test_what_exporter_toolkit_refuses_is_refused(folder: Path, name: str) -> None:
    """And what would ask for something that cannot be had here, or would check nothing."""
    text, told = (BAD | REFUSED_HERE)[name]
    if text is not None:
        write(folder, text)
    with pytest.raises(ConfigError, match=told) as raised:
        load_web_config(str(folder / "web.yml"))
    assert len(str(raised.value).splitlines()) == 1


def test_certificate_key_and_ca_may_stand_in_the_file(folder: Path) -> None:
    def indented(name: str) -> str:
        return "\n".join(f"    {line}" for line in (folder / name).read_text().splitlines())

    write(
        folder,
        f"tls_server_config:\n  cert: |\n{indented('server.crt')}\n  key: |\n"
        f"{indented('server.key')}\n  client_ca: |\n{indented('authority.crt')}\n"
        "  client_auth_type: RequireAndVerifyClientCert\n",
    )
    loaded = load_web_config(str(folder / "web.yml"))
    assert loaded.tls is not None
    assert len(loaded.tls.choose(()).get_ca_certs()) == 1


class Clock:
    """The time after which the files of a test were written, as far as it has advanced."""

    def __init__(self) -> None:
        self.late_seconds = 0.0

    def __call__(self) -> float:
        return time.time() + self.late_seconds


def write(folder: Path, text: str, name: str = "web.yml") -> None:
    """Replace a file as careful programs do."""
    (folder / "new").write_text(text)
    os.replace(folder / "new", folder / name)


def watched(folder: Path, text: str) -> tuple[WebConfigFile, Clock]:
    write(folder, text)
    clock = Clock()
    return WebConfigFile(str(folder / "web.yml"), clock), clock


def test_a_change_counts_at_once(folder: Path) -> None:
    file, _ = watched(folder, f"basic_auth_users: {{{ALICE}}}")
    write(folder, f"basic_auth_users: {{{BOB}}}")
    loaded = file.current()
    assert loaded is not None
    assert set(loaded.users) == {"bob"}


def test_a_file_that_has_not_changed_is_not_read_again(folder: Path) -> None:
    file, clock = watched(folder, f"basic_auth_users: {{{ALICE}}}")
    clock.late_seconds = 10
    assert file.current() is file.current()


@pytest.mark.parametrize(
    "text", ["not: [yaml", "basic_auth_users: {john: doe}", "tls_server_config: {key_file: a}"]
)
def test_a_broken_file_refuses_everyone_until_it_is_right(folder: Path, text: str) -> None:
    file, clock = watched(folder, f"basic_auth_users: {{{ALICE}}}")
    write(folder, text)
    before = file.current()
    assert before is not None  # it may be half written
    assert set(before.users) == {"alice"}
    clock.late_seconds = 2
    assert file.current() is None
    assert file.problem
    write(folder, f"basic_auth_users: {{{BOB}}}")
    assert file.current() is not None
    assert file.problem == ""


def test_a_file_that_was_broken_long_ago_refuses_at_the_first_look(folder: Path) -> None:
    file, clock = watched(folder, f"basic_auth_users: {{{ALICE}}}")
    write(folder, "not: [yaml")
    clock.late_seconds = 3600
    assert file.current() is None


def test_a_file_that_is_gone_refuses_everyone(folder: Path) -> None:
    file, clock = watched(folder, f"basic_auth_users: {{{ALICE}}}")
    (folder / "web.yml").unlink()
    file.current()
    clock.late_seconds = 2
    assert file.current() is None


@pytest.mark.parametrize(
    "text", ["", "# nothing yet\n", "rate_limit: {interval: 1s, burst: 1}\n", TLS % ""]
)
def test_half_a_file_never_opens_access(
    folder: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = TLS % (REQUIRED + ", client_allowed_sans: [ada]") + f"basic_auth_users: {{{ALICE}}}\n"
    file, clock = watched(folder, whole)
    write(folder, text)
    for late in (0, 3600):
        clock.late_seconds = late
        loaded = file.current()
        assert loaded is not None
        assert set(loaded.users) == {"alice"}
        assert loaded.tls is not None
        assert loaded.tls.allowed_sans == {"ada"}
    assert "restart the agent if that is meant" in file.problem
    assert caplog.text.count("web configuration not reloaded") == 1


def test_tls_is_not_switched_on_in_the_middle(folder: Path) -> None:
    file, _ = watched(folder, f"basic_auth_users: {{{ALICE}}}")
    write(folder, TLS % "" + f"basic_auth_users: {{{ALICE}}}")
    assert file.current() is not None
    assert not file.speaks_tls
    assert "restart the agent" in file.problem


def test_a_certificate_may_come_before_its_key(folder: Path) -> None:
    file, clock = watched(folder, TLS % "")
    before = file.current()
    shutil.copy(folder / "other.crt", folder / "server.crt")
    assert file.current() is before
    clock.late_seconds = 30
    assert file.current() is before
    assert "with its key" in file.problem
    shutil.copy(folder / "other.key", folder / "server.key")
    after = file.current()
    assert after is not None
    assert after is not before
    assert file.problem == ""


def test_a_key_that_never_comes_refuses_everyone(folder: Path) -> None:
    file, clock = watched(folder, TLS % "")
    shutil.copy(folder / "other.crt", folder / "server.crt")
    file.current()
    clock.late_seconds = 120
    assert file.current() is None


def test_a_lost_client_ca_refuses_everyone(folder: Path) -> None:
    file, clock = watched(folder, TLS % REQUIRED)
    (folder / "authority.crt").write_text("")
    file.current()
    clock.late_seconds = 2
    assert file.current() is None
