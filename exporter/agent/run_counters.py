"""Counters of what runs did to a home. They never fall, whatever happens to its run journal.

The journal is in the home, and can be lost with its folder, damaged, or replaced by an older copy.
So the state store keeps the last counts of the journal, and by how much earlier counts were higher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct, structs

from exporter.runs.models import RunOutcome
from exporter.runs.summary import DeletedByPolicy, PruneRunCount, ReapCount, RunSummary

_KEYS_MAX: Final = 600
_COUNT_MAX: Final = 2**53
_OUTCOMES: Final = {each.value: each for each in RunOutcome}
Key = tuple[str, str, str]
"""The name of a count, and two values that tell such counts apart."""


class RunCounters(Struct, frozen=True):
    """What the state store keeps."""

    journal: dict[Key, int] = {}
    """What the journal said when it was last read."""
    lost: dict[Key, int] = {}
    """What it had said beyond that, or another journal before it."""
    newest_run: str = ""
    last_at: dict[str, float] = {}
    """When the last prune with each outcome ended."""

    def add(self, read: RunSummary) -> RunCounters:
        """Return the counters after the journal was read; without a run in it nothing is known."""
        if not read.readable or not read.last:
            return self
        now = dict(list(_counts(read))[:_KEYS_MAX])
        fell = any(now.get(key, 0) < count for key, count in self.journal.items())
        is_another = fell and all(run.id > self.newest_run for run in read.last)
        lost = Counter(self.lost)
        for key, count in self.journal.items():
            lost[key] += count if is_another else max(0, count - now.get(key, 0))
        return RunCounters(
            now,
            {key: min(count, _COUNT_MAX) for key, count in lost.most_common(_KEYS_MAX) if count},
            max(run.id for run in read.last),
            self.last_at | {each.outcome.value: each.last_at for each in read.pruned},
        )

    def shown(self, read: RunSummary) -> RunSummary:
        """Return what was read with these counts."""
        total = Counter(self.journal)
        total.update(self.lost)

        def of(name: str) -> Iterator[tuple[str, str, int]]:
            return ((a, b, count) for (kind, a, b), count in total.items() if kind == name)

        freed = {policy: size for policy, _, size in of("freed")}
        return structs.replace(
            read,
            reaped=[ReapCount(*each) for each in of("reaped")],
            reopened=[ReapCount(*each) for each in of("reopened")],
            reborn=total["reborn", "", ""],
            pruned=[
                PruneRunCount(_OUTCOMES[outcome], count, self.last_at.get(outcome, 0.0))
                for outcome, _, count in of("pruned")
                if outcome in _OUTCOMES
            ],
            deleted=[
                DeletedByPolicy(policy, count, freed.get(policy, 0))
                for policy, _, count in of("deleted")
            ],
        )

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self)


def load_counters(data: bytes) -> RunCounters:
    """Return the counters that were kept; none if they cannot be decoded."""
    try:
        return msgspec.msgpack.decode(data, type=RunCounters) if data else RunCounters()
    except msgspec.DecodeError:
        return RunCounters()


def _counts(read: RunSummary) -> Iterator[tuple[Key, int]]:
    yield ("reborn", "", ""), read.reborn
    for run in read.pruned:
        yield ("pruned", run.outcome.value, ""), run.runs
    for deleted in read.deleted:
        yield ("deleted", deleted.policy, ""), deleted.items
        yield ("freed", deleted.policy, ""), deleted.freed_bytes
    for each in read.reopened:
        yield ("reopened", each.source, each.proof), each.sessions
    for each in read.reaped:
        yield ("reaped", each.source, each.proof), each.sessions
