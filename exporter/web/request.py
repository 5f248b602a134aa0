"""Reading the head of an HTTP request: h11 parses it, within our limits.

A proxy and a server that understand the same bytes differently let a client smuggle requests past
the proxy. So ambiguous requests are refused. h11 accepts some of them and has no option to refuse
them. This module does:

- a bare LF as the end of a line, and control characters in a header,
- a header that is folded over several lines,
- a Content-Length that is repeated, in one header or in several,
- a Content-Length beside a Transfer-Encoding.

h11 only reads requests. Responses do not go through it: they are rendered once for many clients and
sent in one write, and h11 would close the connection of every HTTP/1.0 client. An `h11.Connection`
that does not see the response cannot go on to the next request. So each head gets a new one, which
sees only a complete head within the limits, and idle clients take no memory for it.
"""

from __future__ import annotations

import re

import h11
from msgspec import Struct

from exporter.web.limits import Limits

_MALFORMED = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n|\Z)|\r\n[ \t]")
"""Control characters, a CR or LF without the other, and a line that continues the one before."""
_LENGTH_LINE = re.compile(rb"\r\ncontent-length:([^\r]*)", re.IGNORECASE)
_LENGTH = re.compile(rb"[ \t]*[0-9]{1,18}[ \t]*")
_HOST = re.compile(r"[-A-Za-z0-9._~:%\[\]]*")
_ONCE = frozenset({"expect", "authorization"})
"""Headers that may not be repeated; h11 refuses a second Host."""


class Request(Struct, frozen=True):
    """The head of a request; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    keep_alive: bool
    body_bytes: int
    expects_continue: bool
    client: str = ""
    """The address of the client; empty on a Unix socket."""
    query: str = ""
    """What follows the `?`, as the client wrote it."""


class RequestError(Exception):
    """The client gets this status, and the connection is closed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def find_head_end(data: bytes, searched: int, limits: Limits) -> int | None:
    """Return where the head at the start of `data` ends, or None while it is incomplete.

    An earlier call has searched the first `searched` bytes. They are not searched again, so that
    a client that sends byte by byte costs little.
    """
    end = data.find(b"\r\n\r\n", max(0, searched - 3))
    # Up to the first line break of the two that end the head: a body may begin with anything.
    if _MALFORMED.search(data, max(0, searched - 2), end + 2 if end >= 0 else len(data)):
        raise RequestError(400, "control character, bare line break or folded header")
    line_end = data.find(b"\r\n", 0, limits.request_line_bytes + 2)
    if line_end < 0 and len(data) > limits.request_line_bytes:
        raise RequestError(414, f"request line above {limits.request_line_bytes} bytes")
    if end > limits.head_bytes or (end < 0 and len(data) > limits.head_bytes):
        raise RequestError(431, f"request headers above {limits.head_bytes} bytes")
    return end if end >= 0 else None


def parse_head(head: bytes, limits: Limits, client: str = "") -> Request:
    """Return the request whose head `find_head_end` has found; `head` ends before that place."""
    if head.count(b"\r\n") > limits.headers:
        raise RequestError(431, f"more than {limits.headers} request headers")
    parsed = _parse(head)
    modern = parsed.http_version == b"1.1"
    if not modern and parsed.http_version != b"1.0":
        raise RequestError(400, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    method = parsed.method.decode("ascii")
    headers = _headers(parsed)
    path, _, query = _target(method, parsed.target.decode("ascii")).partition("?")
    return Request(
        method=method,
        path=path,
        headers=headers,
        keep_alive=_keeps_alive(headers.get("connection", ""), modern=modern),
        body_bytes=_body_bytes(head, headers, limits),
        expects_continue=modern and _expects_continue(headers),
        client=client,
        query=query,
    )


def _parse(head: bytes) -> h11.Request:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(head + b"\r\n\r\n")
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError as error:
        if error.error_status_hint == 501:  # a transfer coding that h11 does not know
            raise _refused_coding(head) from error
        # The text of the error quotes the request, so it is not sent to the client.
        raise RequestError(400, "malformed request line or header, or not one host") from error
    if not isinstance(event, h11.Request):
        raise RequestError(400, "malformed request")
    return event


def _headers(parsed: h11.Request) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in parsed.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        if name not in headers:
            headers[name] = value
        elif name in _ONCE:
            raise RequestError(400, f"more than one {name} header")
        else:
            headers[name] = f"{headers[name]}, {value}"
    # h11 checks that there is one Host, but not its value.
    if not _HOST.fullmatch(headers.get("host", "")):
        raise RequestError(400, "malformed host header")
    return headers


def _target(method: str, target: str) -> str:
    if target.startswith(("http://", "https://")):
        _, slash, path = target.split("://", 1)[1].partition("/")
        target = slash + path or "/"
    if not target.startswith("/") and not (target == "*" and method == "OPTIONS"):
        raise RequestError(400, "malformed request target")
    return target


def _keeps_alive(connection: str, *, modern: bool) -> bool:
    if not connection:
        return modern
    options = {option.strip().lower() for option in connection.split(",")}
    return "close" not in options and (modern or "keep-alive" in options)


def _body_bytes(head: bytes, headers: dict[str, str], limits: Limits) -> int:
    if "transfer-encoding" in headers:
        raise _refused_coding(head)
    if "content-length" not in headers:
        return 0
    # Read from the head itself: h11 makes one length of `Content-Length: 4, 4`, and of two headers
    # with the same value.
    lengths = _LENGTH_LINE.findall(head)
    if len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0]):
        raise RequestError(400, "malformed content-length, or more than one")
    length = int(lengths[0])
    if length > limits.body_bytes:
        raise RequestError(413, f"request body above {limits.body_bytes} bytes")
    return length


def _refused_coding(head: bytes) -> RequestError:
    if _LENGTH_LINE.search(head):
        return RequestError(400, "both content-length and transfer-encoding")
    return RequestError(411, "a request body needs a content-length")


def _expects_continue(headers: dict[str, str]) -> bool:
    expectation = headers.get("expect")
    if expectation is None:
        return False
    if expectation.lower() != "100-continue":
        raise RequestError(417, "only 100-continue can be expected")
    return True
