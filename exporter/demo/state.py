"""The state directory and the settings of the demo.

The state is what an agent would know that has watched the home for days.

A transcript without a row, or a checkpoint without a folder, proves nothing by itself: an agent
must have seen the row go, or the folder there. The thresholds fit a home of a few megabytes.
"""

from __future__ import annotations

import os
import re
from typing import Final

from exporter.agent.state_store import StateStore
from exporter.demo.trends import write_trends
from exporter.hermes.continuity import text_key
from exporter.pruner.gather.seen_deletions import pack_deleted
from exporter.pruner.models import DeletionMemory, PruneMemory

ORPHAN_ENDING: Final = "0dead"
"""The ids of the deleted sessions end so, with one more digit."""
_ORPHAN: Final = re.compile(rf"session_.*_{ORPHAN_ENDING}[0-9]\.json")
_SEEN_DAYS_AGO: Final = 2.0


_SETTINGS: Final = """\
# Of the demo. `hermes-exporter check` and docs/configuration.md tell what there is.
reaper: {private_homes: true}  # this home is the user's own, so root is not needed
prune:
  thresholds:
    checkpoints: {high: 4MiB, low: 3MiB}
    transcripts: {high: 4MiB, low: 3MiB}
    empty_sessions: {high: 50, low: 10}
"""


def write_settings(directory: str) -> str:
    """Write the configuration of the demo and return its path."""
    path = os.path.join(directory, "config.yml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(_SETTINGS)
    return path


def write_state(state_dir: str, home: str, *, now: float) -> None:
    """Write the memory of an agent that saw sessions deleted and folders go two days ago."""
    then = now - _SEEN_DAYS_AGO * 86400
    deleted = {
        text_key(name): then for name in os.listdir(home + "/sessions") if _ORPHAN.match(name)
    }
    gone = [name for name, workdir in _workdirs(home) if not os.path.isdir(workdir)]
    memory = PruneMemory(
        deletions=DeletionMemory(deleted=pack_deleted(deleted)),
        missing=dict.fromkeys(gone, then),
        present=tuple(gone),
    )
    store = StateStore.open(state_dir)
    try:
        labels = {home: "default", home + "/profiles/work": "default/work"}
        for path, label in labels.items():
            store.give_label(path, label)
        store.keep_homes(dict.fromkeys(labels, os.geteuid()))
        store.keep_prune_memory(home, memory)
        for path in labels:
            write_trends(store, path, now=now)
    finally:
        store.close()


def _workdirs(home: str) -> list[tuple[str, str]]:
    """Return the checkpoints of the old layout, each with the folder that it is of."""
    base = home + "/checkpoints"
    found = []
    for name in sorted(os.listdir(base)):
        try:
            with open(f"{base}/{name}/HERMES_WORKDIR", encoding="utf-8") as file:
                found.append((name, file.read().strip()))
        except OSError:
            continue
    return found
