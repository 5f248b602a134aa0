"""Integers by key in 20 bytes each; a dictionary takes 120.

Most of them lie in arrays that are sorted by key. Those that were set since are in a dictionary,
which is merged into the arrays when it has grown.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

_LOW_BITS: Final = 48
_LOW_MASK: Final = (1 << _LOW_BITS) - 1
_NEWER_MAX: Final = 16_384
"""Below this a dictionary is small, and merging would cost more than it saves."""
_GONE: Final = -1


class PackedIntegers:
    """Integers of up to 80 bits, none negative, by signed keys of 64 bits."""

    def __init__(self) -> None:
        self._keys, self._low, self._high = array("q"), array("q"), array("I")
        self._newer: dict[int, int] = {}
        """What was set since the last merge; _GONE if it was removed."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def set(self, values: dict[int, int], added: int) -> None:
        """Set integers by key; so many of the keys are new."""
        self._newer.update(values)
        self._count += added
        # In proportion to the arrays, so that all merges together cost no more than a few copies.
        if len(self._newer) > _NEWER_MAX + len(self._keys) // 8:
            self._merge()

    def pack(self) -> None:
        """Merge earlier than needed: no more integers are to come for some time."""
        if len(self._keys) > 0 and len(self._newer) > _NEWER_MAX // 8:
            self._merge()

    def get(self, key: int) -> int | None:
        """Return the integer of this key; None if there is none."""
        found = self._newer.get(key)
        if found is None:
            index = bisect_left(self._keys, key)
            if index == len(self._keys) or self._keys[index] != key:
                return None
            return self._high[index] << _LOW_BITS | self._low[index]
        return found if found != _GONE else None

    def pop(self, key: int) -> int | None:
        """Remove an integer and return it; None if there is none."""
        found = self.get(key)
        if found is not None:
            self._newer[key] = _GONE
            self._count -= 1
        return found

    def __iter__(self) -> Iterator[int]:
        """Yield the keys, in no order."""
        newer = self._newer
        yield from (key for key in self._keys if key not in newer)
        yield from (key for key, value in newer.items() if value != _GONE)

    def _merge(self) -> None:
        """Copy the arrays with the newer integers put between.

        No list of all integers is made: such a list would leave holes in the heap.
        """
        keys, low, high, copied = array("q"), array("q"), array("I"), 0
        for key in sorted(self._newer):
            index = bisect_left(self._keys, key, copied)
            if index > copied:
                keys += self._keys[copied:index]
                low += self._low[copied:index]
                high += self._high[copied:index]
            is_known = index < len(self._keys) and self._keys[index] == key
            copied = index + is_known
            value = self._newer[key]
            if value != _GONE:
                keys.append(key)
                low.append(value & _LOW_MASK)
                high.append(value >> _LOW_BITS)
        self._keys = keys + self._keys[copied:]
        self._low = low + self._low[copied:]
        self._high = high + self._high[copied:]
        self._newer = {}
