"""The share of a home in what the watched homes hold on its filesystem."""

from __future__ import annotations

from collections.abc import Collection

from exporter.agent.home_state import HomeState


def disk_share(state: HomeState, homes: Collection[HomeState]) -> float:
    """Return how much of what the watched homes have on its filesystem a home has: 0 to 1.

    A home that was not walked yet has an unknown size; then the others count without it.
    """
    device = _device_of(state)
    sizes = {
        each.home.path: _size_of(each)
        for each in (state, *homes)
        if each is state or (device is not None and _device_of(each) == device)
    }
    total = sum(sizes.values())
    return sizes[state.home.path] / total if total else 1.0


def _device_of(state: HomeState) -> int | None:
    found = state.probe.state.database if state.probe is not None else None
    return found.device if found is not None else None


def _size_of(state: HomeState) -> int:
    if state.snapshot is None:
        return 0
    return sum(usage.allocated_bytes for usage in state.snapshot.disk.usage.values())
