"""Limit the values of a label: the first values get the places, later ones become `other`.

A value without activity for `IDLE_DAYS` loses its place to a new value that is active, so that a
model of next year is shown by its name. The counters of the old value stay in the store, but are
not shown (`StateStore.counters`). If it comes back, they continue from their totals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import apsw

from exporter.collectors.labels import LIMITS, AllowedValues, LabelFamily
from exporter.snapshot import OTHER

IDLE_DAYS: Final = 30
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS label_activity (
    home INTEGER NOT NULL REFERENCES homes(id), family TEXT NOT NULL, value TEXT NOT NULL,
    day INTEGER NOT NULL, PRIMARY KEY (home, family, value)
) WITHOUT ROWID;
"""
"""When each value was last active. It is not part of the versioned tables: an older agent works
without it.
"""
_SEPARATOR: Final = "\x1f"
"""Between the parts of a stored value, such as source and model."""


def allow(
    connection: apsw.Connection,
    home: int,
    family: LabelFamily,
    values: Iterable[tuple[str, ...]],
    *,
    active: Collection[tuple[str, ...]] = (),
    today: int,
) -> AllowedValues:
    """Give places to these values while there are free ones, and return the values that have one.

    `active` are the values that were used since the last scan. Only an active value takes the place
    of an idle one. Otherwise values of old rows would take the place from each other in turn.
    """
    places = _Places(connection, home, family, today)
    for value in values:
        if value not in places.days and not places.is_other(value):
            if len(places.days) >= LIMITS[family] and not (
                value in active and places.make_room(active)
            ):
                continue
            places.give(value)
        elif value in active:
            places.touch(value)
    return AllowedValues(frozenset(places.days))


class _Places:
    """The places of one family of a home, each with the day of its last activity."""

    def __init__(
        self, connection: apsw.Connection, home: int, family: LabelFamily, today: int
    ) -> None:
        self._connection = connection
        self._key = home, family.value
        self._today = today
        # A value without a day got its place from an earlier version: it counts as active today.
        self.days: dict[tuple[str, ...], int | None] = {
            tuple(value.split(_SEPARATOR)): day
            for value, day in connection.execute(
                "SELECT value, day FROM admitted LEFT JOIN label_activity "
                "USING (home, family, value) WHERE home = ? AND family = ?",
                self._key,
            )
        }
        for value in [each for each, day in self.days.items() if day is None]:
            self.touch(value)

    def is_other(self, value: tuple[str, ...]) -> bool:
        return all(part == OTHER for part in value)

    def touch(self, value: tuple[str, ...]) -> None:
        """Note that a value which has a place is active today."""
        if value in self.days and self.days[value] != self._today:
            self.days[value] = self._today
            self._connection.execute(
                "INSERT OR REPLACE INTO label_activity VALUES (?, ?, ?, ?)",
                (*self._key, _SEPARATOR.join(value), self._today),
            )

    def give(self, value: tuple[str, ...]) -> None:
        """Give a place to a value."""
        self._connection.execute(
            "INSERT OR IGNORE INTO admitted VALUES (?, ?, ?)", (*self._key, _SEPARATOR.join(value))
        )
        self.days[value] = None  # so that `touch` writes the day
        self.touch(value)

    def make_room(self, active: Collection[tuple[str, ...]]) -> bool:
        """Free the place of the value that was idle longest; False if none was idle long enough."""
        idle = [
            (day, value)
            for value, day in self.days.items()
            if day is not None and day < self._today - IDLE_DAYS and value not in active
        ]
        if not idle:
            return False
        _, value = min(idle)
        del self.days[value]
        for table in ("admitted", "label_activity"):
            self._connection.execute(
                f"DELETE FROM {table} WHERE home = ? AND family = ? AND value = ?",  # noqa: S608
                (*self._key, _SEPARATOR.join(value)),
            )
        return True
