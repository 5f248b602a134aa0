"""Reading an HTTP request: strict, bounded and without any I/O.

Whatever two readers of HTTP could understand differently is refused: bare CR or LF, folded
headers, two lengths, a length beside a transfer coding.
"""

from __future__ import annotations

import re

from msgspec import Struct

from exporter.web.limits import Limits

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = re.compile(r"[!-~]+")
_HOST = re.compile(r"[-A-Za-z0-9._~:%\[\]]*")
_LENGTH = re.compile(r"[0-9]{1,18}")
_MALFORMED = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n|\Z)")
_ONCE = frozenset({"host", "content-length", "expect", "authorization"})


class Request(Struct, frozen=True):
    """The head of a request; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    keep_alive: bool
    body_bytes: int
    expects_continue: bool


class RequestError(Exception):
    """The request gets this status and the connection ends."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def find_head_end(data: bytes, searched: int, limits: Limits) -> int | None:
    """Where the head that `data` begins with ends, None while it is incomplete.

    The first `searched` bytes are known from an earlier call, so that a client that sends byte by
    byte is not searched from the start each time.
    """
    end = data.find(b"\r\n\r\n", max(0, searched - 3))
    if _MALFORMED.search(data, max(0, searched - 1), end + 2 if end >= 0 else len(data)):
        raise RequestError(400, "control character or bare line break in the request")
    line_end = data.find(b"\r\n", 0, limits.request_line_bytes + 2)
    if line_end < 0 and len(data) > limits.request_line_bytes:
        raise RequestError(414, f"request line above {limits.request_line_bytes} bytes")
    if end > limits.head_bytes or (end < 0 and len(data) > limits.head_bytes):
        raise RequestError(431, f"request headers above {limits.head_bytes} bytes")
    return end if end >= 0 else None


def parse_head(head: bytes, limits: Limits) -> Request:
    """The request of a head that ended before its empty line."""
    line, *fields = head.decode("latin-1").split("\r\n")
    method, path, version = _request_line(line)
    if len(fields) > limits.headers:
        raise RequestError(431, f"more than {limits.headers} request headers")
    headers = _headers(fields)
    modern = version == "HTTP/1.1"
    _check_host(headers, required=modern)
    return Request(
        method=method,
        path=path,
        headers=headers,
        keep_alive=_keeps_alive(headers.get("connection", ""), modern=modern),
        body_bytes=_body_bytes(headers, limits),
        expects_continue=modern and _expects_continue(headers),
    )


def _request_line(line: str) -> tuple[str, str, str]:
    parts = line.split(" ")
    if len(parts) != 3:
        raise RequestError(400, "malformed request line")
    method, target, version = parts
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise RequestError(400, "malformed request line")
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise RequestError(400, "only HTTP/1.1 and HTTP/1.0 are spoken here")
    return method, _path(method, target), version


def _path(method: str, target: str) -> str:
    if target.startswith(("http://", "https://")):
        _, slash, path = target.split("://", 1)[1].partition("/")
        target = slash + path or "/"
    if not target.startswith("/") and not (target == "*" and method == "OPTIONS"):
        raise RequestError(400, "malformed request target")
    return target.partition("?")[0]


def _headers(fields: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for field in fields:
        name, colon, value = field.partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise RequestError(400, "malformed request header")
        name, value = name.lower(), value.strip(" \t")
        if name not in headers:
            headers[name] = value
        elif name in _ONCE:
            raise RequestError(400, f"more than one {name} header")
        else:
            headers[name] = f"{headers[name]}, {value}"
    return headers


def _check_host(headers: dict[str, str], *, required: bool) -> None:
    host = headers.get("host")
    if host is None:
        if required:
            raise RequestError(400, "missing host header")
    elif not _HOST.fullmatch(host):
        raise RequestError(400, "malformed host header")


def _keeps_alive(connection: str, *, modern: bool) -> bool:
    if not connection:
        return modern
    options = {option.strip().lower() for option in connection.split(",")}
    return "close" not in options and (modern or "keep-alive" in options)


def _body_bytes(headers: dict[str, str], limits: Limits) -> int:
    length = headers.get("content-length")
    if "transfer-encoding" in headers:
        if length is not None:
            raise RequestError(400, "both content-length and transfer-encoding")
        raise RequestError(411, "a request body needs a content-length")
    if length is None:
        return 0
    if not _LENGTH.fullmatch(length):
        raise RequestError(400, "malformed content-length")
    if int(length) > limits.body_bytes:
        raise RequestError(413, f"request body above {limits.body_bytes} bytes")
    return int(length)


def _expects_continue(headers: dict[str, str]) -> bool:
    expectation = headers.get("expect")
    if expectation is None:
        return False
    if expectation.lower() != "100-continue":
        raise RequestError(417, "only 100-continue can be expected")
    return True
