"""Bytes and files of a home by kind, its checkpoints, and the filesystem it is on.

hermes_disk_bytes{home="default",kind="checkpoints_legacy"} 1.2e+10
hermes_checkpoint_projects{home="default",layout="store",state="orphan"} 12
"""

from __future__ import annotations

from itertools import product

from exporter.collectors.registry import Label, Samples, collector, gauge
from exporter.collectors.view import HostView
from exporter.snapshot import DiskKind, DiskUsage

KIND = Label("kind", tuple(kind.value for kind in DiskKind))
LAYOUT = Label("layout", ("legacy", "store"))
STATE = Label("state", ("active", "orphan", "stale"))

BYTES = gauge(
    "hermes_disk_bytes",
    "Allocated bytes of the home by kind, as du counts them; the kinds add up to the home.",
    "home",
    KIND,
)
FILES = gauge("hermes_disk_files", "Files of the home by kind, folders not counted.", "home", KIND)
PROJECTS = gauge(
    "hermes_checkpoint_projects",
    "Shadow repositories and store projects. Orphan: the work folder is gone. Stale: unused for "
    "longer than prune.policies.stale_checkpoints.older_than.",
    "home",
    LAYOUT,
    STATE,
)
SIZE = gauge(
    "hermes_filesystem_size_bytes",
    "Size of the filesystem that holds the home; homes on one filesystem have the same label.",
    "home",
    "filesystem",
    at_most=1,
)
AVAILABLE = gauge(
    "hermes_filesystem_avail_bytes",
    "Bytes that the home's owner may still write to its filesystem.",
    "home",
    "filesystem",
    at_most=1,
)


@collector("disk", "bytes and files of each home by kind", BYTES, FILES)
def collect_disk(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.snapshot is None:
            continue
        for kind in DiskKind:
            usage = home.snapshot.disk.usage.get(kind, DiskUsage())
            samples.add(BYTES, usage.allocated_bytes, home.label, kind.value)
            samples.add(FILES, usage.files, home.label, kind.value)


@collector("checkpoints", "checkpoint projects by layout and state", PROJECTS)
def collect_checkpoints(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.snapshot is None:
            continue
        counted = {(c.layout, c.state): c.projects for c in home.snapshot.disk.checkpoints}
        for layout, state in product(LAYOUT.values, STATE.values):
            samples.add(PROJECTS, counted.get((layout, state), 0), home.label, layout, state)


@collector("filesystem", "size and free space of each home's filesystem", SIZE, AVAILABLE)
def collect_filesystem(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.probe is not None and home.probe.filesystem is not None:
            found = home.probe.filesystem
            samples.add(SIZE, found.size_bytes, home.label, found.identity)
            samples.add(AVAILABLE, found.avail_bytes, home.label, found.identity)
