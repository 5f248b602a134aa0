"""Room for a run: what it copies into the trash, and what is left because that does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from exporter.pruner.decide.inventory import Inventory
from exporter.pruner.decide.items import ItemGroup
from exporter.pruner.models import Act
from exporter.writing.space import deletion_bytes, journal_bytes, rows_trash_bytes, why_no_room

_CHECKED_BUNDLES: Final = 1
"""A bundle is unpacked once, to see that it is whole."""


def with_room(
    groups: Sequence[ItemGroup], inventory: Inventory
) -> tuple[list[ItemGroup], list[ItemGroup], str]:
    """Return the groups for which there is room, the others, and why these are left.

    Files and shadow repositories are renamed into the trash, which needs none. The rows of sessions
    are copied there, and so are the snapshots of projects of the checkpoint store.
    """
    free = inventory.free_bytes
    if free is None:
        return list(groups), [], ""
    fitting: list[ItemGroup] = []
    left: list[ItemGroup] = []
    count = payload = bundles = 0
    for group in groups:
        sessions, bundle = group.items[: group.sessions], _bundle_bytes(group)
        more = payload + sum(item.bytes for item in sessions)
        needed = bundles + (1 + _CHECKED_BUNDLES) * bundle
        if count or sessions:
            needed += deletion_bytes(count + len(sessions), more)
        if (sessions or bundle) and needed > free:
            left.append(group)
            continue
        fitting.append(group)
        count, payload, bundles = count + len(sessions), more, bundles + bundle
    return fitting, left, _why_left(left, needed_bytes(groups), free)


def needed_bytes(groups: Sequence[ItemGroup]) -> int:
    """Return how much room it takes to take all of these."""
    items = sum(len(group.items) for group in groups)
    sessions = [item for group in groups for item in group.items[: group.sessions]]
    bundles = (1 + _CHECKED_BUNDLES) * sum(map(_bundle_bytes, groups))
    rows = deletion_bytes(len(sessions), sum(item.bytes for item in sessions)) if sessions else 0
    return journal_bytes(items) + bundles + rows


def _why_left(left: Sequence[ItemGroup], needed: int, free: int) -> str:
    """Return how much room it takes to leave none of these; '' if none is left."""
    if not left:
        return ""
    any_sessions = any(group.sessions for group in left)
    what = "sessions" if any_sessions else "projects of the checkpoint store"
    return f"{what} are left for now: {why_no_room(needed, free, f'deleting these {what}')}"


def _bundle_bytes(group: ItemGroup) -> int:
    """Return how much the snapshots of its projects take in the trash."""
    return sum(item.bytes for item in group.items if item.kind is Act.DELETE_PROJECT)


def bytes_of_rows(groups: Iterable[ItemGroup]) -> int:
    """Return how much the rows of these sessions take in the trash."""
    sessions = [item for group in groups for item in group.items[: group.sessions]]
    return rows_trash_bytes(len(sessions), sum(item.bytes for item in sessions))
