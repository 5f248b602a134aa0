"""A request is understood exactly, or refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.limits import DEFAULT_LIMITS, Limits
from exporter.web.request import Request, RequestError, find_head_end, parse_head

SCRAPE = (
    b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:10749\r\nUser-Agent: Prometheus/3.0.0\r\n"
    b"Accept: text/plain\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n"
)

MALFORMED = [
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /\r\n\r\n",
    b"GET / HTTP/1.1 x\r\nHost: a\r\n\r\n",
    b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    b" GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n",
    b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    b"GET / http/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1x\r\nHost: a\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\n\n",
    b"GET / HTTP/1.1\nHost: a\n\n",
    b"GET / HTTP/1.1\r\nHost: a\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: <script>\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n folded\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n: empty\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x10\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \xb2\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\ncontent-length: 0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 4\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nX: y\r\n Content-Length: 4\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nX: y\nContent-Length: 4\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4,\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\ncontent-length: 4\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\t\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x01b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x7fb\r\n\r\n",
    b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/0.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\x00" * 64,
]

REFUSED = [
    (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    (b"a" * 5000, 414),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 17000 + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 17000, 431),
    (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 64 + b"\r\n", 431),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n", 413),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 411),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", 411),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n", 411),
    (b"POST / HTTP/1.1\r\nHost: a\r\n" + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n", 411),
    (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: a miracle\r\n\r\n", 417),
]


LINE = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [!-~]+ HTTP/1\.[01]"
HEADER = rb"\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*"
STRICT_HEAD = re.compile(LINE + b"(" + HEADER + b")*")
"""Every head that may be understood at all; RFC 9112 without what it calls obsolete."""

FRAGMENTS = [
    *(b"GET", b"POST", b"/", b"*", b"http://a/b", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0"),
    *(b" ", b"\t", b"\r\n", b"\r\n", b"\r\n", b"\r", b"\n", b"\r\n\r\n", b":", b","),
    *(b"\x00", b"\x01", b"\x85", b"Host: a", b"host: b", b"X: y", b" X: y", b"X : y"),
    *(b"Content-Length: 4", b"content-length:4", b"Content-Length: 4, 4", b"Content-Length: +4"),
    *(b"Transfer-Encoding: chunked", b"transfer-encoding: gzip", b"Transfer-Encoding : chunked"),
]
BEGINNING = b"POST / HTTP/1.1\r\nHost: a\r\n"


def parse(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Request:
    end = find_head_end(data, 0, limits)
    assert end is not None
    return parse_head(data[:end], limits)


def test_a_scrape_is_understood() -> None:
    assert parse(SCRAPE) == Request(
        method="GET",
        path="/metrics",
        headers={
            "host": "localhost:10749",
            "user-agent": "Prometheus/3.0.0",
            "accept": "text/plain, */*",
            "accept-encoding": "gzip",
        },
        keep_alive=True,
        body_bytes=0,
        expects_continue=False,
        query="x=1",
    )


@pytest.mark.parametrize("data", MALFORMED)
def test_what_is_malformed_is_a_bad_request(data: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        parse(data)
    assert refused.value.status == 400


@pytest.mark.parametrize(("data", "status"), REFUSED)
def test_what_is_too_much_is_told_so(data: bytes, status: int) -> None:
    with pytest.raises(RequestError) as refused:
        parse(data)
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [
        ("HTTP/1.1", "", True),
        ("HTTP/1.1", "Connection: close\r\n", False),
        ("HTTP/1.1", "Connection: TE, Close\r\n", False),
        ("HTTP/1.1", "Connection: upgrade\r\n", True),
        ("HTTP/1.0", "", False),
        ("HTTP/1.0", "Connection: Keep-Alive\r\n", True),
        ("HTTP/1.0", "Connection: keep-alive, close\r\n", False),
    ],
)
def test_when_a_connection_is_kept(version: str, connection: str, keeps: bool) -> None:
    head = f"GET / {version}\r\nHost: a\r\n{connection}\r\n".encode()
    assert parse(head).keep_alive is keeps


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/", "/"),
        ("/a?b?c", "/a"),
        ("http://elsewhere/metrics?x", "/metrics"),
        ("https://elsewhere", "/"),
        ("//metrics", "//metrics"),
        ("/%6d", "/%6d"),
    ],
)
def test_the_path_of_a_target(target: str, path: str) -> None:
    assert parse(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode()).path == path


def test_an_old_client_needs_no_host_and_expects_nothing() -> None:
    assert not parse(b"GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expects_continue
    assert parse(b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n").expects_continue


@given(cut=st.integers(1, len(SCRAPE) - 1))
def test_a_head_in_two_parts_ends_where_a_whole_one_does(cut: int) -> None:
    assert find_head_end(SCRAPE[:cut], 0, DEFAULT_LIMITS) is None
    assert find_head_end(SCRAPE, cut, DEFAULT_LIMITS) == len(SCRAPE) - 4


@pytest.mark.parametrize("body", [b" ", b"\t", b"\n", b"\r", b"\x00\xff"])
def test_what_follows_a_head_is_not_judged_with_it(body: bytes) -> None:
    assert find_head_end(SCRAPE + body, 0, DEFAULT_LIMITS) == len(SCRAPE) - 4


@pytest.mark.parametrize("data", MALFORMED)
def test_a_malformed_head_is_refused_byte_by_byte_too(data: bytes) -> None:
    def feed() -> None:
        for size in range(1, len(data) + 1):
            end = find_head_end(data[:size], size - 1, DEFAULT_LIMITS)
            if end is not None:
                parse_head(data[:end], DEFAULT_LIMITS)

    with pytest.raises(RequestError):
        feed()


@given(
    fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=12),
    beginning=st.sampled_from([b"", BEGINNING]),
    cuts=st.lists(st.integers(1, 200), max_size=4),
)
def test_what_is_understood_is_unambiguous(
    fragments: list[bytes], beginning: bytes, cuts: list[int]
) -> None:
    """Whatever the pieces it arrives in, and however lenient the library that parses it."""
    data = beginning + b"".join(fragments) + b"\r\n\r\n"
    searched = 0
    try:
        for size in sorted(cut for cut in cuts if cut < len(data)):
            if find_head_end(data[:size], searched, DEFAULT_LIMITS) is not None:
                break
            searched = size
        end = find_head_end(data, searched, DEFAULT_LIMITS)
        assert end is not None
        request = parse_head(data[:end], DEFAULT_LIMITS)
    except RequestError:
        return
    head = data[:end]
    assert STRICT_HEAD.fullmatch(head)
    assert end == data.index(b"\r\n\r\n")
    names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
    assert b"transfer-encoding" not in names
    assert names.count(b"host") <= 1
    assert names.count(b"content-length") <= 1
    assert request.body_bytes == (4 if b"content-length" in names else 0)
    assert set(request.headers) == {name.decode() for name in names}


def test_what_is_refused_is_not_repeated_to_the_client() -> None:
    for bad in (b"G(evil / HTTP/1.1\r\nHost: a", b"GET / HTTP/1.1\r\nHost: a\r\nevil header"):
        with pytest.raises(RequestError) as refused:
            parse(bad + b"\r\n\r\n")
        assert "evil" not in refused.value.reason


@given(
    data=st.one_of(
        st.binary(max_size=300),
        st.lists(
            st.sampled_from([b"GET", b" ", b"/", b"HTTP/1.1", b"\r\n", b"\n", b":", b"Host", b"a"])
        ).map(b"".join),
    )
)
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    status = 200
    try:
        end = find_head_end(data, 0, DEFAULT_LIMITS)
        if end is not None:
            parse_head(data[:end], DEFAULT_LIMITS)
    except RequestError as refused:
        status = refused.status
    assert status == 200 or 400 <= status < 500
