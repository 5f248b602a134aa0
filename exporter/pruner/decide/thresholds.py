"""When to prune: thresholds that press from crossing their high mark until reaching their low one.

A soft threshold presses only after it stayed above its high mark for a while. Between two runs
there is a cool-down, during which pressure is held. What an earlier run has given up but what only
time, a purge or an upkeep will bring back counts as reclaimed, so it is not asked for twice; and a
threshold that a run did not lower as it should have is left alone for a day.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from msgspec import Struct, structs

from exporter.config.prune import Prune, Threshold
from exporter.pruner.decide.inventory import Inventory, InventorySession
from exporter.pruner.models import PruneMemory, ThresholdMemory, ThresholdName
from exporter.snapshot import Filesystem

_NO_HELP_SECONDS: Final = 24 * 3600.0
_HELPED_SHARE: Final = 0.5
"""A run that lowered a threshold by less than this share of what it gave up was of no use."""
_REACHED_SHARE: Final = 0.75
"""One that lowered it by so much, as far as it shows, did reach the low mark; what is missing has
grown again since."""


class Reading(Struct, frozen=True):
    """One threshold now, in the unit of its marks."""

    value: float
    pending: float = 0.0
    """The part that is given up already and will come free without another run."""
    unit_bytes: float = 1.0
    """How many bytes one of its unit is: the size of the filesystem for a ratio; 0 for a count."""


class Level(Struct, frozen=True):
    """One threshold, judged."""

    name: ThresholdName
    reading: Reading | None
    """None if it cannot be told; then it stays as it was and starts nothing."""
    high: float
    low: float
    pressing: bool
    due: bool
    """A run may be planned for it now."""
    held: str = ""
    """Why it is pressing and yet no run is due: `cooldown` or `no_help`."""

    @property
    def excess(self) -> float:
        """How much is above the low mark, in its own unit, whatever is pending."""
        return max(0.0, self.reading.value - self.low) if self.reading else 0.0

    @property
    def wanted(self) -> float:
        """How much a run has to give up so that the low mark will be reached."""
        return max(0.0, self.excess - self.reading.pending) if self.reading else 0.0


class Pressure(Struct, frozen=True):
    """All thresholds of a home."""

    levels: tuple[Level, ...] = ()
    emergency: bool = False
    """The filesystem is so full that old trash goes at once, and half packs without the trash."""
    emergency_since: float | None = None
    """When that began; what was put into the trash since then stays."""

    def level(self, name: ThresholdName) -> Level | None:
        return next((each for each in self.levels if each.name is name), None)


def read_levels(inventory: Inventory) -> dict[ThresholdName, Reading]:
    """Where the thresholds stand; those that cannot be told are left out."""
    readings = {ThresholdName.TRANSCRIPTS: Reading(inventory.transcripts_bytes)}
    if inventory.checkpoints_bytes is not None:
        pending = min(inventory.awaiting_gc_bytes, inventory.checkpoints_bytes)
        readings[ThresholdName.CHECKPOINTS] = Reading(inventory.checkpoints_bytes, pending)
    if inventory.payload_bytes is not None:
        readings[ThresholdName.STATE_DB] = Reading(inventory.payload_bytes)
        empty = sum(is_empty(session) for session in inventory.sessions)
        readings[ThresholdName.EMPTY_SESSIONS] = Reading(empty, unit_bytes=0.0)
    trash = sum(run.allocated_bytes for run in inventory.trash)
    disk = disk_reading(inventory.filesystem, waiting_bytes=trash + inventory.awaiting_gc_bytes)
    if disk is not None:
        readings[ThresholdName.DISK_USED] = disk
    return readings


def disk_reading(
    filesystem: Filesystem | None, known: Reading | None = None, *, waiting_bytes: int = 0
) -> Reading | None:
    """How full a filesystem is, as df tells it: what is reserved for root is not to be had.

    `known` is an older reading; what waits to come free is then as it was.
    """
    if filesystem is None or filesystem.used_bytes + filesystem.avail_bytes <= 0:
        return None
    size = filesystem.used_bytes + filesystem.avail_bytes
    pending = waiting_bytes / size if known is None else known.pending
    return Reading(filesystem.used_bytes / size, pending, size)


def is_empty(session: InventorySession) -> bool:
    """An ended session without a message."""
    return not session.is_open and session.size == 0


def assess(
    readings: Mapping[ThresholdName, Reading], settings: Prune, memory: PruneMemory, now: float
) -> tuple[Pressure, PruneMemory]:
    """Judge all thresholds; the second is what to remember for the next time."""
    levels: list[Level] = []
    thresholds: dict[str, ThresholdMemory] = {}
    cooling = memory.last_run_at is not None and (
        0 <= now - memory.last_run_at < settings.cooldown_seconds
    )
    for name in ThresholdName:
        marks: Threshold = getattr(settings.thresholds, name.value)
        reading = readings.get(name)
        known = memory.thresholds.get(name.value, ThresholdMemory())
        if reading is not None:
            known = _advance(known, reading, marks, now)
        thresholds[name.value] = known
        held = "cooldown" if cooling else _no_help(known, now)
        levels.append(
            Level(
                name=name,
                reading=reading,
                high=marks.high,
                low=marks.low,
                pressing=known.pressing,
                due=known.pressing and reading is not None and not held,
                held=held if known.pressing else "",
            )
        )
    disk = readings.get(ThresholdName.DISK_USED)
    emergency = disk is not None and disk.value >= settings.emergency
    since = memory.emergency_since
    if disk is not None and disk.value <= settings.thresholds.disk_used.low:
        since = None  # not before: else what one crossing moved, the next would empty
    if emergency:
        since = now if since is None else min(since, now)
    return (
        Pressure(tuple(levels), emergency, since if emergency else None),
        structs.replace(memory, thresholds=thresholds, emergency_since=since),
    )


def _advance(
    known: ThresholdMemory, reading: Reading, marks: Threshold, now: float
) -> ThresholdMemory:
    """Follow one threshold to its present value."""
    value = reading.value
    if value <= marks.low:
        return ThresholdMemory()
    if known.attempted_at is not None:
        fallen = known.attempted_from - (value - reading.pending)
        wanted = known.attempted_relief
        reached = known.attempted_whole and fallen >= _REACHED_SHARE * wanted
        if fallen >= _HELPED_SHARE * wanted:
            pressing = known.pressing and not (reached and value <= marks.high)
            known = ThresholdMemory(pressing=pressing, above_since=known.above_since)
    if value <= marks.high:
        return structs.replace(known, above_since=None)
    since = known.above_since
    if since is None or since > now:  # a clock that was set back begins anew
        since = now
    patient = marks.for_seconds is not None and now - since < marks.for_seconds
    return structs.replace(known, above_since=since, pressing=known.pressing or not patient)


def _no_help(known: ThresholdMemory, now: float) -> str:
    """Whether a run is still to be believed to have been of no use."""
    if known.attempted_at is None:
        return ""
    return "no_help" if 0 <= now - known.attempted_at < _NO_HELP_SECONDS else ""


def for_manual_run(pressure: Pressure) -> Pressure:
    """The same for a person who asks now: neither grace nor pause stands in the way."""
    levels = []
    for level in pressure.levels:
        crossed = level.reading is not None and (level.pressing or level.reading.value > level.high)
        levels.append(structs.replace(level, pressing=crossed, due=crossed, held=""))
    return structs.replace(pressure, levels=tuple(levels))


class Lowering(Protocol):
    """An item of a policy, or an action of a plan."""

    @property
    def bytes(self) -> int: ...

    @property
    def lowers(self) -> tuple[ThresholdName, ...]: ...


def relief(what: Lowering, threshold: ThresholdName) -> int:
    """By how much this lowers a threshold: in bytes, or by one where things are counted."""
    if threshold not in what.lowers:
        return 0
    return 1 if threshold is ThresholdName.EMPTY_SESSIONS else what.bytes


def relief_of(actions: Collection[Lowering], pressure: Pressure) -> dict[str, float]:
    """What these actions lower each threshold by, in its own unit."""
    found: dict[str, float] = {}
    for action in actions:
        for name in action.lowers:
            found[name.value] = found.get(name.value, 0.0) + relief(action, name)
    disk = pressure.level(ThresholdName.DISK_USED)
    if disk is not None and disk.reading is not None and ThresholdName.DISK_USED.value in found:
        found[ThresholdName.DISK_USED.value] /= disk.reading.unit_bytes
    return found


def note_done(
    memory: PruneMemory, pressure: Pressure, done: Collection[Lowering], now: float
) -> PruneMemory:
    """Remember a run that has done this: no run follows one that did not help."""
    return note_run(memory, pressure, relief_of(done, pressure), now)


def note_run(
    memory: PruneMemory, pressure: Pressure, lowered: Mapping[str, float], now: float
) -> PruneMemory:
    """Remember that a run was made that should lower thresholds by so much of their own unit."""
    thresholds = dict(memory.thresholds)
    for name, amount in lowered.items():
        level = pressure.level(ThresholdName(name))
        if level is None or level.reading is None or not level.due:
            continue
        thresholds[name] = structs.replace(
            thresholds.get(name, ThresholdMemory()),
            attempted_at=now,
            attempted_from=level.reading.value - level.reading.pending,
            attempted_relief=amount,
            attempted_whole=amount >= level.wanted,
        )
    return structs.replace(memory, thresholds=thresholds, last_run_at=now)
