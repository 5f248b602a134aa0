"""The first message of a TLS client: which curves it offers."""

from __future__ import annotations

MOST_BYTES = 32768
"""More than any client needs; a longer first message is not waited for."""
_HANDSHAKE, _CLIENT_HELLO, _SUPPORTED_GROUPS = 22, 1, 10


def offered_groups(data: bytes) -> tuple[int, ...] | None:
    """Return the numbers of the curves that a ClientHello offers; None while it is incomplete.

    What is no ClientHello offers nothing: OpenSSL then refuses it.
    """
    message = b""
    position = 0
    while position + 5 <= len(data):
        if data[position] != _HANDSHAKE:
            return ()
        end = position + 5 + int.from_bytes(data[position + 3 : position + 5], "big")
        message += data[position + 5 : end]
        if len(message) >= 4 and message[0] != _CLIENT_HELLO:
            return ()
        if len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4], "big"):
            return _groups(message[4 : 4 + int.from_bytes(message[1:4], "big")])
        position = end
    return None if len(data) < MOST_BYTES and data[:1] in (b"", b"\x16") else ()


def _groups(body: bytes) -> tuple[int, ...]:
    """Skip version, random, session id, cipher suites and compression; then find the extension."""
    try:
        position = 34
        position += 1 + body[position]
        position += 2 + int.from_bytes(body[position : position + 2], "big")
        position += 1 + body[position]
    except IndexError:
        return ()
    position += 2
    while position + 4 <= len(body):
        kind = int.from_bytes(body[position : position + 2], "big")
        end = position + 4 + int.from_bytes(body[position + 2 : position + 4], "big")
        if kind == _SUPPORTED_GROUPS:
            listed = body[position + 6 : end]
            return tuple(
                int.from_bytes(listed[index : index + 2], "big")
                for index in range(0, len(listed) - 1, 2)
            )
        position = end
    return ()
