"""Read the first message of a TLS client (ClientHello): which elliptic curves it offers.

TLS calls them groups (RFC 8446, 4.2.7). The message comes in one or more records; a record is a
type (1 byte), a version (2), a length (2) and its content.
"""

from __future__ import annotations

MOST_BYTES = 32768
"""More than any client needs; we do not wait for the rest of a longer message."""
_HANDSHAKE, _CLIENT_HELLO, _SUPPORTED_GROUPS = 22, 1, 10
"""The type of a record, of a message and of an extension."""


def offered_groups(data: bytes) -> tuple[int, ...] | None:
    """Return the numbers of the curves that a ClientHello offers; None while it is incomplete.

    Anything else than a ClientHello offers none: OpenSSL then refuses it.
    """
    message = b""
    position = 0
    while position + 5 <= len(data):
        if data[position] != _HANDSHAKE:
            return ()
        end = position + 5 + int.from_bytes(data[position + 3 : position + 5], "big")
        message += data[position + 5 : end]
        # A message begins with its type (1 byte) and its length (3).
        if len(message) >= 4 and message[0] != _CLIENT_HELLO:
            return ()
        if len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4], "big"):
            return _groups(message[4 : 4 + int.from_bytes(message[1:4], "big")])
        position = end
    return None if len(data) < MOST_BYTES and data[:1] in (b"", b"\x16") else ()


def _groups(body: bytes) -> tuple[int, ...]:
    """Skip version, random, session id, cipher suites and compression; then find the extension."""
    try:
        position = 34  # version (2 bytes) and random (32)
        position += 1 + body[position]  # session id
        position += 2 + int.from_bytes(body[position : position + 2], "big")  # cipher suites
        position += 1 + body[position]  # compression
    except IndexError:
        return ()
    position += 2  # the length of all extensions
    while position + 4 <= len(body):
        kind = int.from_bytes(body[position : position + 2], "big")
        end = position + 4 + int.from_bytes(body[position + 2 : position + 4], "big")
        if kind == _SUPPORTED_GROUPS:
            listed = body[position + 6 : end]  # after type, length, and length of the list
            return tuple(
                int.from_bytes(listed[index : index + 2], "big")
                for index in range(0, len(listed) - 1, 2)
            )
        position = end
    return ()
