"""`prune.caps`: what automatic runs take from a home in 24 hours at most.

What is above follows when the 24 hours are over, so a backlog drains by itself. An item that alone
is above them, such as the archive of all old checkpoints, goes too: one in 24 hours. What was taken
is read from the run journal, so a restart of the agent does not begin a new day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from exporter.config.prune import Caps
from exporter.pruner.decide.inventory import Inventory, TakenRecently
from exporter.pruner.decide.items import Item, ItemGroup, when_freed
from exporter.pruner.decide.stores import Amount, Store, store_of
from exporter.pruner.models import Act
from exporter.runs.models import Capped, Frees
from exporter.text import format_count, format_percent, format_size

WINDOW_SECONDS: Final = 24 * 3600.0
FEW: Final = 5
"""Up to this many items the share does not count: two of three would be most of a store."""


class _Cap(StrEnum):
    """What a limit is on; the stores have a limit each."""

    ITEMS = "items"
    BYTES = "bytes"


class CappedChoice(Struct, frozen=True):
    """The part of a plan that may go now, and the part that waits."""

    chosen: list[ItemGroup]
    waiting: list[ItemGroup]
    capped: Capped | None


def within_caps(
    groups: Iterable[ItemGroup], inventory: Inventory, caps: Caps, *, emergency: bool
) -> CappedChoice:
    """Take groups in their order while the caps of these 24 hours allow it.

    A group that does not fit now but would fit tomorrow keeps its place: nothing smaller passes
    it, or there would never be room for it. A group that is larger than a whole day's caps goes if
    none has exceeded them in these 24 hours.
    """
    allowance = _Allowance(inventory, caps)
    fresh = _Allowance(inventory, caps, taken=TakenRecently())
    chosen: list[ItemGroup] = []
    waiting: list[ItemGroup] = []
    closed: set[str] = set()
    for group in groups:
        items = _counted(group, emergency=emergency)
        if not items:
            chosen.append(group)
            continue
        never_fits = bool(fresh.exceeded_by(items))
        exceeded = allowance.exceeded(items) if never_fits else allowance.exceeded_by(items)
        if exceeded or not closed.isdisjoint(_limits_on(items)):
            closed |= exceeded
            waiting.append(group)
            continue
        allowance.take(items)
        chosen.append(group)
    capped = _capped(waiting, closed, inventory) if waiting else None
    return CappedChoice(chosen, waiting, capped)


def _capped(
    waiting: Sequence[ItemGroup],
    closed: Iterable[str],
    inventory: Inventory,
) -> Capped:
    items = [item for group in waiting for item in group.items]
    first = inventory.taken_recently.first_at
    began = inventory.taken_at if first is None else min(first, inventory.taken_at)
    return Capped(
        items=len(items),
        bytes=sum(item.bytes for item in items),
        caps=sorted({"share" if each in set(Store) else str(each) for each in closed}),
        more_at=began + WINDOW_SECONDS,
    )


def _counted(group: ItemGroup, *, emergency: bool) -> list[Item]:
    """Return what counts: emptied trash, and what an emergency frees at once, does not."""
    return [item for item in group.items if when_freed(item, emergency=emergency) is not Frees.NOW]


def _limits_on(items: Sequence[Item]) -> set[str]:
    """Return the limits that these items need room in."""
    stores = {store_of(item.kind, item.target) for item in items}
    return {_Cap.ITEMS, _Cap.BYTES, *(store for store in stores if store is not None)}


class _Allowance:
    """What may still be taken."""

    def __init__(
        self, inventory: Inventory, caps: Caps, taken: TakenRecently | None = None
    ) -> None:
        taken = inventory.taken_recently if taken is None else taken
        self._caps = caps
        self._items = taken.items
        self._bytes = taken.bytes
        self._stores = dict(taken.stores)
        # A store's share is of what it was before these 24 hours took anything of it.
        self._wholes = {
            store: size + self._stores.get(store, Amount()).amount
            for store, size in store_sizes(inventory).items()
        }

    def exceeded_by(self, items: Sequence[Item]) -> set[str]:
        """Return the limits that would be exceeded with these items."""
        more = amounts_of(items)
        return self._exceeded(len(items), sum(item.bytes for item in items), more)

    def exceeded(self, items: Sequence[Item]) -> set[str]:
        """Return the limits on these items that are exceeded without them."""
        return self._exceeded(0, 0, dict.fromkeys(amounts_of(items), Amount()))

    def _exceeded(self, items: int, size: int, amounts: Mapping[Store, Amount]) -> set[str]:
        found: set[str] = set()
        if self._items + items > self._caps.items:
            found.add(_Cap.ITEMS)
        if self._bytes + size > self._caps.bytes:
            found.add(_Cap.BYTES)
        for store, more in amounts.items():
            total = self._stores.get(store, Amount()).plus(more)
            if total.items > FEW and total.amount > self._caps.share * self._wholes[store]:
                found.add(store)
        return found

    def take(self, items: Sequence[Item]) -> None:
        self._items += len(items)
        self._bytes += sum(item.bytes for item in items)
        for store, more in amounts_of(items).items():
            self._stores[store] = self._stores.get(store, Amount()).plus(more)


def store_sizes(inventory: Inventory) -> dict[Store, int]:
    """Return what each store holds now: sessions by their number, files by their bytes."""
    return {
        Store.SESSIONS: len(inventory.sessions),
        Store.TRANSCRIPTS: inventory.transcripts_bytes,
        Store.CHECKPOINTS: inventory.checkpoints_bytes or 0,
    }


def amounts_of(items: Iterable[Item]) -> dict[Store, Amount]:
    """Return what these items are of each store."""
    counts: Counter[Store] = Counter()
    sizes: Counter[Store] = Counter()
    for item in items:
        store = store_of(item.kind, item.target)
        if store is not None:
            counts[store] += 1
            sizes[store] += 1 if store is Store.SESSIONS else item.bytes
    return {store: Amount(counts[store], sizes[store]) for store in counts}


def more_than_a_day(groups: Iterable[ItemGroup], inventory: Inventory, caps: Caps) -> Iterator[str]:
    """Yield, for a person who takes all at once, in what this is more than a day's caps."""
    items = [item for each in groups for item in each.items if item.kind is not Act.PURGE_TRASH]
    size = sum(item.bytes for item in items)
    if len(items) > caps.items:
        most = format_count(caps.items)
        yield f"{format_count(len(items))} items, more than the {most} of automatic runs in 24 h"
    if size > caps.bytes:
        most = format_size(caps.bytes)
        yield f"{format_size(size)}, more than the {most} of automatic runs in 24 h"
    wholes = store_sizes(inventory)
    for store, found in amounts_of(items).items():
        whole = wholes[store]
        if found.items > FEW and found.amount > caps.share * whole:
            share = format_percent(min(1.0, found.amount / whole) if whole else 1.0)
            most = format_percent(caps.share)
            yield f"{share} of all {store}, more than the {most} of automatic runs in 24 h"
