"""A program to which the kernel answers one system call with an error, by a seccomp filter.

Run as `python -m tests.real.denied_call ERRNO COMMAND...`: COMMAND gets ERRNO from every statx.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

_STATX = {"x86_64": 332, "aarch64": 291}
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2


def deny_statx(code: int) -> None:
    """Of this process and all that it starts."""
    program = b"".join(
        struct.pack("HBBI", *line)
        for line in (
            (_LOAD, 0, 0, 0),  # the number of the call
            (_EQUAL, 0, 1, _STATX[platform.machine()]),
            (_RETURN, 0, 0, _ERRNO | code),
            (_RETURN, 0, 0, _ALLOW),
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    library = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SECCOMP, _FILTER, header, 0, 0)):
        if library.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    deny_statx(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
