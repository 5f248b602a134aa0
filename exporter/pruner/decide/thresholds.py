"""When to prune.

- A threshold is under pressure from the moment its value is above the high watermark until it is at
  the low watermark. With `for`, only after it was above the high watermark for that time.
- No run starts during the cool-down after a run, and none for a day for a threshold that the last
  run did not lower as expected.
- Bytes in the trash, or waiting for VACUUM or `git gc`, count as freed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from msgspec import Struct, structs

from exporter.config.prune import Prune, Threshold, ThresholdName
from exporter.pruner.decide.inventory import Inventory, InventorySession
from exporter.pruner.models import PruneMemory, ThresholdMemory
from exporter.snapshot import Filesystem

_NO_HELP_SECONDS: Final = 24 * 3600.0
_HELPED_SHARE: Final = 0.5
"""A run that lowered a threshold by less than this share of what it took did not help."""
_REACHED_SHARE: Final = 0.75
"""A run that lowered it by this share reached the low watermark; the rest is new growth."""

_EARLIER_NAMES: Final = {ThresholdName.STATE_DB_PAYLOAD: "state_db"}
"""The names under which earlier versions remembered a threshold."""


class Reading(Struct, frozen=True):
    """The value of one threshold now, in the unit of its watermarks."""

    value: float
    pending: float = 0.0
    """The part that earlier runs took and that will be free without another run."""
    unit_bytes: float = 1.0
    """Bytes per unit: the size of the filesystem for a ratio; 0 for a count."""
    share: float = 1.0
    """The part that this home is asked for: others use the same filesystem."""
    given: float = 0.0
    """What this home gave already since it is under pressure."""


class Level(Struct, frozen=True):
    """One threshold, and whether it is under pressure."""

    name: ThresholdName
    reading: Reading | None
    """None if it cannot be read; then the pressure stays as it was and starts no run."""
    high: float
    low: float
    pressing: bool
    due: bool
    """A run may be planned for it now."""
    held: str = ""
    """Why no run is due in spite of pressure: `cooldown` or `no_help`."""
    over_since: float | None = None
    """Since when it is above the high watermark, or was and has not been at the low one since."""
    acts_at: float | None = None
    """When a run by itself may begin, if that is later: after `for`, a cool-down, or a day."""

    @property
    def excess(self) -> float:
        """The amount above the low watermark. Bytes that will come free anyway count too."""
        return max(0.0, self.reading.value - self.low) if self.reading else 0.0

    @property
    def asked(self) -> float:
        """The part of the excess that this home must give.

        All that the homes of a filesystem had to give is the excess and what they gave. So a home
        that has given its share is not asked again because another one has not.
        """
        if self.reading is None:
            return 0.0
        given = self.reading.given
        return min(self.excess, max(0.0, self.reading.share * (self.excess + given) - given))

    @property
    def wanted(self) -> float:
        """The amount that a run must take to reach the low watermark."""
        return max(0.0, self.asked - self.reading.pending) if self.reading else 0.0


class Pressure(Struct, frozen=True):
    """All thresholds of a home."""

    levels: tuple[Level, ...] = ()
    emergency: bool = False
    """The disk is so full that old trash is emptied now, and half packs skip the trash."""
    emergency_since: float | None = None
    """When that began. Trash that is younger stays."""

    def level(self, name: ThresholdName) -> Level | None:
        return next((each for each in self.levels if each.name is name), None)


def read_levels(inventory: Inventory, settings: Prune) -> dict[ThresholdName, Reading]:
    """Return the values of the thresholds; those that cannot be read are left out."""
    readings = {ThresholdName.TRANSCRIPTS: Reading(inventory.transcripts_bytes)}
    if inventory.checkpoints_bytes is not None:
        pending = min(inventory.awaiting_gc_bytes, inventory.checkpoints_bytes)
        readings[ThresholdName.CHECKPOINTS] = Reading(inventory.checkpoints_bytes, pending)
    if inventory.payload_bytes is not None:
        readings[ThresholdName.STATE_DB_PAYLOAD] = Reading(inventory.payload_bytes)
        empty = sum(is_empty(session) for session in inventory.sessions)
        readings[ThresholdName.EMPTY_SESSIONS] = Reading(empty, unit_bytes=0.0)
    trash = sum(run.purgeable_bytes for run in inventory.trash)
    garbage = inventory.awaiting_gc_bytes if settings.upkeep.gc else 0
    disk = disk_reading(inventory.filesystem, waiting_bytes=trash + garbage)
    if disk is not None:
        readings[ThresholdName.DISK_USED] = structs.replace(
            disk, share=inventory.disk_share, given=inventory.purged_bytes / disk.unit_bytes
        )
    return readings


def disk_reading(
    filesystem: Filesystem | None, known: Reading | None = None, *, waiting_bytes: int = 0
) -> Reading | None:
    """Return how full a filesystem is, as df computes it: without the blocks reserved for root.

    `known` is an older reading, from which the pending part is taken.
    """
    if filesystem is None or filesystem.used_bytes + filesystem.avail_bytes <= 0:
        return None
    size = filesystem.used_bytes + filesystem.avail_bytes
    used = filesystem.used_bytes / size
    if known is not None:
        return structs.replace(known, value=used, unit_bytes=size)
    return Reading(used, waiting_bytes / size, size)


def is_empty(session: InventorySession) -> bool:
    """True for an ended session without a message."""
    return not session.is_open and session.size == 0


def assess(
    readings: Mapping[ThresholdName, Reading], settings: Prune, memory: PruneMemory, now: float
) -> tuple[Pressure, PruneMemory]:
    """Return the pressure of all thresholds, and what to remember for the next time."""
    levels: list[Level] = []
    thresholds: dict[str, ThresholdMemory] = {}
    cooling = memory.last_run_at is not None and (
        0 <= now - memory.last_run_at < settings.cooldown_seconds
    )
    for name in ThresholdName:
        limits: Threshold = getattr(settings.thresholds, name.value)
        reading = readings.get(name)
        known = _remembered(memory, name)
        if reading is not None:
            known = _advance(known, reading, limits, now)
        thresholds[name.value] = known
        held = "cooldown" if cooling else _no_help(known, now)
        levels.append(
            Level(
                name=name,
                reading=reading,
                high=limits.high,
                low=limits.low,
                pressing=known.pressing,
                due=known.pressing and reading is not None and not held,
                held=held if known.pressing else "",
                over_since=known.pressing_since if known.pressing else known.above_since,
                acts_at=_acts_at(known, limits, memory, settings, held),
            )
        )
    disk = readings.get(ThresholdName.DISK_USED)
    emergency = disk is not None and disk.value >= settings.emergency
    since = memory.emergency_since
    if disk is not None and disk.value <= settings.thresholds.disk_used.low:
        since = None  # not earlier: the next crossing must not empty what this one moved
    if emergency:
        since = now if since is None else min(since, now)
    return (
        Pressure(tuple(levels), emergency, since if emergency else None),
        structs.replace(memory, thresholds=thresholds, emergency_since=since),
    )


def _remembered(memory: PruneMemory, name: ThresholdName) -> ThresholdMemory:
    found = memory.thresholds.get(name.value)
    if found is None and name in _EARLIER_NAMES:
        found = memory.thresholds.get(_EARLIER_NAMES[name])
    return found or ThresholdMemory()


def _advance(
    known: ThresholdMemory, reading: Reading, limits: Threshold, now: float
) -> ThresholdMemory:
    """Return the memory of one threshold after this reading."""
    value = reading.value
    if value <= limits.low:
        return ThresholdMemory()
    if known.attempted_at is not None:
        fallen = known.attempted_from - (value - reading.pending)
        wanted = known.attempted_relief
        reached = known.attempted_whole and fallen >= _REACHED_SHARE * wanted
        if fallen >= _HELPED_SHARE * wanted:
            pressing = known.pressing and not (reached and value <= limits.high)
            known = ThresholdMemory(
                pressing=pressing,
                above_since=known.above_since,
                pressing_since=known.pressing_since if pressing else None,
            )
    if value <= limits.high:
        return structs.replace(known, above_since=None)
    since = known.above_since
    if since is None or since > now:  # after the clock was set back, the time starts again
        since = now
    too_early = limits.for_seconds is not None and now - since < limits.for_seconds
    if not known.pressing and not too_early:
        known = structs.replace(known, pressing=True, pressing_since=now)
    return structs.replace(known, above_since=since)


def _acts_at(
    known: ThresholdMemory, limits: Threshold, memory: PruneMemory, settings: Prune, held: str
) -> float | None:
    """Return until when no run begins by itself for a threshold that is over; None: none waits."""
    if not known.pressing:
        since = known.above_since
        return None if since is None else since + (limits.for_seconds or 0.0)
    if held == "cooldown" and memory.last_run_at is not None:
        return memory.last_run_at + settings.cooldown_seconds
    if held and known.attempted_at is not None:
        return known.attempted_at + _NO_HELP_SECONDS
    return None


def _no_help(known: ThresholdMemory, now: float) -> str:
    """Return `no_help` for a day after a run that did not lower the threshold."""
    if known.attempted_at is None:
        return ""
    return "no_help" if 0 <= now - known.attempted_at < _NO_HELP_SECONDS else ""


def for_manual_run(pressure: Pressure) -> Pressure:
    """Return the pressure for a run by hand: without grace time and cool-down."""
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
    """Return by how much this lowers a threshold: its bytes, or 1 for a count."""
    if threshold not in what.lowers:
        return 0
    return 1 if threshold is ThresholdName.EMPTY_SESSIONS else what.bytes


def relief_of(actions: Collection[Lowering], pressure: Pressure) -> dict[str, float]:
    """Return by how much these actions lower each threshold, in its own unit."""
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
    """Remember what a run has done, so that no run follows one that did not help."""
    if done and not any(action.lowers for action in done):
        return memory  # it only emptied trash, which needs no cool-down
    return note_run(memory, pressure, relief_of(done, pressure), now)


def note_run(
    memory: PruneMemory, pressure: Pressure, lowered: Mapping[str, float], now: float
) -> PruneMemory:
    """Remember that a run should lower thresholds by these amounts, each in its own unit."""
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
