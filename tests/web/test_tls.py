"""Real TLS handshakes with a real server: who gets in, by which version, cipher and curve."""

from __future__ import annotations

import shutil
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.web.client_hello import offered_groups
from exporter.web.limits import Limits
from exporter.web.security import WebSecurity
from exporter.web.web_config import WebConfigFile
from tests.support.certificates import Authority
from tests.support.web_server import (
    DEADLINE_SECONDS,
    Running,
    eventually,
    read_to_end,
    receive,
    request,
    running,
    status_of,
)
from tests.web.test_server import LARGE, Pages, connections

TLS = "tls_server_config: {cert_file: server.crt, key_file: server.key%s}\n"
REQUIRED = ", client_auth_type: RequireAndVerifyClientCert, client_ca_file: authority.crt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    authority = Authority(folder)
    for name in ("server", "rotated"):
        authority.issue(name, "DNS:localhost,IP:127.0.0.1")
    authority.issue("client", "DNS:ada,email:ada@example.org,URI:spiffe://a/b,IP:::1")
    authority.issue("expired", "DNS:ada", days=-1)
    Authority(folder / "foreign").issue("client", "DNS:ada")
    return folder


def security(folder: Path, extra: str = "", more: str = "") -> WebSecurity:
    file = folder / f"web-{abs(hash((extra, more)))}.yml"
    file.write_text(TLS % extra + more)
    return WebSecurity(WebConfigFile(str(file)))


def client_context(folder: Path, pair: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "authority.crt"))
    if pair is not None:
        context.load_cert_chain(folder / f"{pair}.crt", folder / f"{pair}.key")
    return context


def connect(server: Running, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(server.address, timeout=DEADLINE_SECONDS)
    try:
        return context.wrap_socket(plain, server_hostname="localhost")
    except BaseException:
        plain.close()
        raise


def status(server: Running, context: ssl.SSLContext) -> int | None:
    """The status of one request; None if TLS was refused, at once or at the first read."""
    try:
        with connect(server, context) as client:
            client.sendall(request("/one"))
            return receive(client)[0].status
    except (ssl.SSLError, ConnectionError):
        return None


def test_large_answers_pipelines_and_byte_by_byte_work_as_without_tls(folder: Path) -> None:
    with running(Pages(), security=security(folder)) as server:
        with connect(server, client_context(folder)) as client:
            assert client.selected_alpn_protocol() is None
            for path in ("/one", "/large", "/packed", "/two"):
                client.sendall(request(path))
                assert receive(client)[1] == (LARGE if len(path) > 5 else path.encode())
            for byte in request("/three"):
                client.sendall(bytes([byte]))
            assert receive(client)[1] == b"/three"
        paths = [f"/{number}" for number in range(300)]
        with connect(server, client_context(folder)) as client:
            asked = [request(path) for path in paths]
            client.sendall(b"".join(asked) + request("/end", {"Connection": "close"}))
            answers = read_to_end(client).split(b"HTTP/1.1 200 OK\r\n")[1:]
        found = [answer.partition(b"\r\n\r\n")[2].decode() for answer in answers]
        assert found == [*paths, "/end"]
        eventually(lambda: connections(server) == 0)


def test_a_client_that_asks_for_http_2_gets_http_1(folder: Path) -> None:
    context = client_context(folder)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with running(Pages(), security=security(folder)) as server, connect(server, context) as client:
        assert client.selected_alpn_protocol() == "http/1.1"


def test_refused_requests_can_be_read(folder: Path) -> None:
    with (
        running(Pages(), security=security(folder)) as server,
        connect(server, client_context(folder)) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100_000)
        assert status_of(read_to_end(client)) == 431


def test_plain_http_on_the_tls_port_is_told_so(folder: Path) -> None:
    with running(Pages(), security=security(folder)) as server:
        answer = server.say(request("/one"))
        assert status_of(answer) == 400
        assert b"HTTPS" in answer
        assert b"/one" not in answer


def test_the_plain_link_of_an_alert_leads_on_to_https(folder: Path) -> None:
    with running(Pages(), security=security(folder)) as server:
        answer = server.say(request("/runbooks/HermesAgentDown"))
        assert status_of(answer) == 307
        assert b"\r\nLocation: https://localhost/runbooks/HermesAgentDown\r\n" in answer
        for path in ("/metrics", "/runbooks/../metrics", "/runbooks/a/b"):
            assert status_of(server.say(request(path))) == 400
        split = request("/runbooks/A", {"X": "\r\nHost: evil"})
        assert b"Location: https://localhost/" in server.say(split)


@settings(max_examples=60)
@given(data=st.binary(min_size=1, max_size=300))
def test_random_bytes_are_no_handshake(folder: Path, data: bytes) -> None:
    with running(Pages(), security=security(folder)) as server:
        assert b"HTTP/1.1 200" not in server.say(data)
        assert b"HTTP/1.1 200" not in server.say(b"\x16\x03\x01" + data)
        eventually(lambda: connections(server) == 0)


# Client certificates.


def test_only_certificates_of_the_authority_get_in(folder: Path) -> None:
    with running(Pages(), security=security(folder, REQUIRED)) as server:
        assert status(server, client_context(folder, "client")) == 200
        for refused in (None, "expired", "foreign/client"):
            assert status(server, client_context(folder, refused)) is None


def test_without_a_ca_no_certificate_gets_in(folder: Path) -> None:
    """The toolkit would take those of any public authority."""
    blocking = security(folder, ", client_auth_type: RequireAndVerifyClientCert")
    with running(Pages(), security=blocking) as server:
        for pair in (None, "client"):
            assert status(server, client_context(folder, pair)) is None


def test_a_certificate_that_need_not_be_given_must_be_valid(folder: Path) -> None:
    optional = REQUIRED.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")
    with running(Pages(), security=security(folder, optional)) as server:
        assert status(server, client_context(folder)) == 200
        assert status(server, client_context(folder, "client")) == 200
        assert status(server, client_context(folder, "foreign/client")) is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("[bad]", None),
        ("[one, ada, two]", 200),
        ("[ada@example.org]", 200),
        ('["spiffe://a/b"]', 200),
        ('["::1"]', 200),
        ("[AD]", None),
        ("[client]", None),
    ],
)
def test_one_of_the_allowed_names_must_be_in_the_certificate(
    folder: Path, names: str, expected: int | None
) -> None:
    rules = security(folder, f"{REQUIRED}, client_allowed_sans: {names}")
    with running(Pages(), security=rules) as server:
        assert status(server, client_context(folder, "client")) == expected


# Versions, ciphers, curves.


def test_versions_ciphers_and_their_order(folder: Path) -> None:
    suites = (
        "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]"
    )
    wanted = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"
    for extra, expected in {
        f", {suites}, max_version: TLS12": "ECDHE-ECDSA-AES256-GCM-SHA384",
        f", {suites}, max_version: TLS12, prefer_server_cipher_suites: false": wanted.split(":")[0],
    }.items():
        context = client_context(folder)
        context.set_ciphers(wanted)
        with (
            running(Pages(), security=security(folder, extra)) as server,
            connect(server, context) as client,
        ):
            assert client.version() == "TLSv1.2"
            cipher = client.cipher()
            assert cipher is not None
            assert cipher[0] == expected
            other = client_context(folder)
            other.set_ciphers("ECDHE-ECDSA-CHACHA20-POLY1305")
            assert status(server, other) is None
    with running(Pages(), security=security(folder, ", min_version: TLS13")) as server:
        context = client_context(folder)
        assert status(server, context) == 200
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert status(server, context) is None


def test_only_preferred_curves_are_used(folder: Path) -> None:
    def offering(curve: str) -> ssl.SSLContext:
        context = client_context(folder)
        context.set_ecdh_curve(curve)
        return context

    curves = ("prime256v1", "secp384r1", "secp521r1", "X25519")
    for preferred, allowed in {
        "[CurveP521]": {"secp521r1"},
        "[CurveP521, X25519]": {"secp521r1", "X25519"},
        "[CurveP256, CurveP384, CurveP521, X25519]": set(curves),
    }.items():
        rules = security(folder, f", curve_preferences: {preferred}")
        with running(Pages(), security=rules) as server:
            for curve in curves:
                expected = 200 if curve in allowed else None
                assert status(server, offering(curve)) == expected, (preferred, curve)
            older = client_context(folder)
            older.maximum_version = ssl.TLSVersion.TLSv1_2
            assert status(server, older) == 200


def hello() -> bytes:
    """The first message of a real client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="a")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = hello()


def test_the_curves_of_a_real_client_are_found_in_pieces_too() -> None:
    groups = offered_groups(HELLO)
    assert groups is not None
    assert {23, 29} <= set(groups)
    assert all(offered_groups(HELLO[:length]) is None for length in range(len(HELLO)))
    body = HELLO[5:]
    records = (body[:7], body[7:100], body[100:])
    split = b"".join(b"\x16\x03\x01" + len(each).to_bytes(2, "big") + each for each in records)
    assert offered_groups(split) == groups


@given(st.binary(max_size=100), st.integers(0, len(HELLO)))
def test_no_bytes_break_the_search_for_curves(data: bytes, kept: int) -> None:
    offered_groups(HELLO[:kept] + data)


def test_tls_1_2_clients_that_come_and_go_leave_nothing_behind(folder: Path) -> None:
    """OpenSSL would keep a session of each."""
    rules = security(folder)
    context = client_context(folder)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with running(Pages(), security=rules) as server:
        for _ in range(300):
            with connect(server, context) as client:
                client.sendall(request("/one", {"Connection": "close"}))
                assert status_of(read_to_end(client)) == 200
        contexts = rules.tls_contexts()
        assert contexts is not None
        assert contexts.choose(()).session_stats()["number"] < 100


# Rotation, and a file that breaks.


def test_a_rotated_certificate_is_shown_to_the_next_client(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "etc")
    folder = tmp_path / "etc"
    with running(Pages(), security=security(folder)) as server:
        context = client_context(folder)
        with connect(server, context) as kept:
            before = kept.getpeercert(binary_form=True)
            for suffix in ("crt", "key"):
                shutil.copy(folder / f"rotated.{suffix}", folder / f"server.{suffix}")
            with connect(server, context) as client:
                assert client.getpeercert(binary_form=True) != before
            kept.sendall(request("/one"))
            response, body = receive(kept)
            # By the rules of before it has its answer, and connects anew for the next.
            assert (body, response.getheader("Connection")) == (b"/one", "close")


def test_a_broken_file_refuses_new_clients_and_open_connections(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "etc")
    folder = tmp_path / "etc"
    rules = security(folder)
    assert rules.file is not None
    file = Path(rules.file.path)
    with running(Pages(), security=rules) as server:
        context = client_context(folder)
        with connect(server, context) as kept:
            good = file.read_text()
            file.write_text("tls_server_config: [\n")
            eventually(lambda: status(server, context) is None)
            kept.sendall(request("/one"))
            assert receive(kept)[0].status == 500
        file.write_text(good)
        assert status(server, context) == 200


# Clients that stall.


def test_handshakes_that_stall_give_way_and_run_out_of_time(folder: Path) -> None:
    limits = Limits(connections=20, request_seconds=1)
    with running(Pages(), limits, security=security(folder)) as server, ExitStack() as stack:
        for number in range(60):
            client = stack.enter_context(server.connect())
            client.sendall(HELLO[: number * 9])
        assert status(server, client_context(folder)) == 200
        assert connections(server) <= 25
        eventually(lambda: connections(server) == 0)


def test_a_client_that_never_reads_is_cut_off(folder: Path) -> None:
    limits = Limits(response_seconds=0.3, linger_seconds=0.2)
    pages = Pages()
    with (
        running(pages, limits, security=security(folder)) as server,
        connect(server, client_context(folder)) as client,
    ):
        client.sendall(request("/large"))
        eventually(lambda: pages.paths == ["/large"])
        eventually(lambda: connections(server) == 0)


def test_a_drain_finishes_what_is_under_way(folder: Path) -> None:
    with (
        running(Pages(), security=security(folder)) as server,
        connect(server, client_context(folder)) as idle,
    ):
        server.call(server.server.drain(100))
        assert read_to_end(idle) == b""
