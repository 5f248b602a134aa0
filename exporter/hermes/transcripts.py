"""How many messages a transcript has: it may have some that are in no database.

    session_<id>.json, <id>.json    all messages so far, with their number (`message_count`)
    <id>.jsonl                      a line for each message, of a gateway up to 0.14

Up to 0.16 Hermes writes the first form after each tool, and the database only at the end of the
turn. A gateway reads the second form where it has more messages than the database.
"""

from __future__ import annotations

import os
import re
from typing import Final

from exporter.errors import HomeError
from exporter.hermes.paths import SESSIONS
from exporter.hermes.small_files import read_small

LINES_SUFFIX: Final = ".jsonl"
_BYTES_MAX: Final = 4 * 1024 * 1024
_COUNT: Final = re.compile(rb'"message_count":\s*(\d{1,9})')
_NO_MESSAGE: Final = b'"session_meta"'


def messages_in(home: str, name: str) -> int | None:
    """Return the number of messages in a transcript of sessions/; None if it cannot be told."""
    try:
        content = read_small(os.path.join(home, os.fsdecode(SESSIONS), name), _BYTES_MAX)
    except HomeError:
        return None
    if content is None:
        return 0
    if name.endswith(LINES_SUFFIX):
        lines = (line for line in content.splitlines() if line.strip())
        return sum(_NO_MESSAGE not in line[:64] for line in lines)
    # The text of a message cannot match: quotes in it are escaped.
    return max(map(int, _COUNT.findall(content)), default=None)
