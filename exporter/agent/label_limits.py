"""Limit label values: the first seen keep their place permanently, later ones become `other`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import apsw

from exporter.collectors.labels import LIMITS, AllowedValues, LabelFamily
from exporter.snapshot import OTHER

_SEPARATOR: Final = "\x1f"


def allow(
    connection: apsw.Connection, home: int, family: LabelFamily, values: Iterable[tuple[str, ...]]
) -> AllowedValues:
    """Give these values places while there are free ones, and remember which values have one."""
    known = {
        tuple(value.split(_SEPARATOR))
        for (value,) in connection.execute(
            "SELECT value FROM admitted WHERE home = ? AND family = ?", (home, family)
        )
    }
    other = tuple(OTHER for _ in range(2 if "-" in family else 1))
    for value in values:
        if value in known or value == other or len(known) >= LIMITS[family]:
            continue
        connection.execute(
            "INSERT OR IGNORE INTO admitted VALUES (?, ?, ?)",
            (home, family, _SEPARATOR.join(value)),
        )
        known.add(value)
    return AllowedValues(frozenset(known))
