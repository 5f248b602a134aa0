"""A ring of each home's own figures: a point every 5 minutes for 14 days.

The host page draws it, so that a host without Prometheus shows how its figures moved. A point is
one row in the state store, written in one transaction: a crash loses at most that point. 4,032
points of a home take about 1 MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from exporter import logs
from exporter.agent.state_store import StateStore
from exporter.collectors.view import HomeView, HostView
from exporter.reaper.models import Verdict
from exporter.snapshot import DiskKind

POINT_SECONDS: Final = 300
KEPT_SECONDS: Final = 14 * 86400
_FIRST_SECONDS: Final = 60
"""How long after the first scan of a home its first point is stored."""
_TOKENS: Final = "tokens"
"""The name of the counter in `HomeView.counters`."""

log = logs.get("trends")


class Figures(Struct, frozen=True, array_like=True):
    """One point. It is stored as a list, so a new figure may only be added at the end."""

    sessions_open: int
    dead: int
    unknown: int
    tokens: float
    """All tokens that were ever counted in this home."""
    disk: Annotated[tuple[int, ...], Meta(max_length=64)]
    """Allocated bytes, in the order of `DiskKind`."""


class TrendRecorder:
    """Decides when a home's next point is due, and stores it."""

    def __init__(self, store: StateStore, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._last: dict[str, float] = {}
        self._changes = logs.StateChange()

    def record(self, view: HostView) -> None:
        """Store a point of every home that was read and whose last point is 5 minutes old."""
        now = self._monotonic()
        for home in view.homes:
            # The first verdicts come after several scans: a point before them would show no leaks.
            last = self._last.setdefault(home.path, now - POINT_SECONDS + _FIRST_SECONDS)
            if now - last < POINT_SECONDS:
                continue
            figures = figures_of(home)
            if figures is not None and self._keep(home.path, int(view.now), figures):
                self._last[home.path] = now

    def _keep(self, path: str, at: int, figures: Figures) -> bool:
        try:
            self._store.keep_trend(path, at, msgspec.json.encode(figures), at - KEPT_SECONDS)
        except Exception as error:  # noqa: BLE001 - a full disk must not end a scan
            if self._changes.changed("store", type(error).__name__):
                log.warn("trend not stored", error=str(error))
            return False
        self._changes.changed("store", "")
        return True


def figures_of(home: HomeView) -> Figures | None:
    """Return the figures of the last scan; None if the home could not be read."""
    snapshot = home.snapshot
    if not home.up or snapshot is None or snapshot.sessions is None:
        return None
    verdicts = {Verdict.DEAD: 0, Verdict.UNKNOWN: 0}
    for each in home.verdicts:
        if each.verdict in verdicts:
            verdicts[each.verdict] += each.sessions
    usage = snapshot.disk.usage
    return Figures(
        sum(snapshot.sessions.open_by_source.values()),
        verdicts[Verdict.DEAD],
        verdicts[Verdict.UNKNOWN],
        sum(each.value for each in home.counters if each.name == _TOKENS),
        tuple(usage[kind].allocated_bytes if kind in usage else 0 for kind in DiskKind),
    )


def trends(
    store: StateStore, homes: Sequence[tuple[str, str]], since: float = 0.0
) -> dict[str, Any]:
    """Return the points of these homes (path, label) as `/api/v1/trends` shows them."""
    return {
        "interval_seconds": POINT_SECONDS,
        "homes": [{"home": label, **_columns(store, path, since)} for path, label in homes],
    }


def _columns(store: StateStore, path: str, since: float) -> dict[str, Any]:
    points = list(_points([row for row in store.trend(path) if row[0] >= since]))
    return {
        "at": [at for at, _ in points],
        "open": [each.sessions_open for _, each in points],
        "dead": [each.dead for _, each in points],
        "unknown": [each.unknown for _, each in points],
        "tokens": [each.tokens for _, each in points],
        "disk": {
            kind.value: [each.disk[number] if number < len(each.disk) else 0 for _, each in points]
            for number, kind in enumerate(DiskKind)
        },
    }


def _points(rows: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, Figures]]:
    """Yield the points that can be decoded; a damaged one is left out."""
    for at, figures in rows:
        try:
            yield at, msgspec.json.decode(figures, type=Figures)
        except (msgspec.MsgspecError, TypeError):
            continue
