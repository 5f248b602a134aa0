"""Whether a database is sound, as far as a quick look tells."""

from __future__ import annotations

from typing import Final

import apsw

_COMPLAINTS_MAX: Final = 100
_OF_THE_TEXT_INDEX: Final = "malformed inverted index for FTS5 table "


def is_sound(connection: apsw.Connection) -> bool:
    """What quick_check finds, but for the text index.

    Hermes stores pictures with a NUL in their text. The SQLite that it runs with indexes such a
    text up to the NUL, ours would index all of it: so ours calls a healthy index malformed. Nothing
    is lost with an index anyway; Hermes can make it anew from the messages.
    """
    rows = connection.execute(f"PRAGMA quick_check({_COMPLAINTS_MAX})").fetchall()
    return all(line == "ok" or str(line).startswith(_OF_THE_TEXT_INDEX) for (line,) in rows)
