"""The health of state.db, and of the processes that write it.

hermes_state_db_pages{home="default"} 245760
hermes_state_db_deleted_wal_holders{home="default"} 0
"""

from __future__ import annotations

from exporter.collectors.registry import Samples, collector, gauge
from exporter.collectors.view import HostView

SCHEMA = gauge("hermes_state_db_schema_version", "Schema version that Hermes noted.", "home")
PAGES = gauge("hermes_state_db_pages", "Pages of the database file.", "home")
FREE_PAGES = gauge("hermes_state_db_free_pages", "Unused pages in the file.", "home")
PAGE_SIZE = gauge("hermes_state_db_page_size_bytes", "Size of a page.", "home")
INTEGRITY = gauge(
    "hermes_state_db_integrity_ok",
    "1 if the last quick_check found the database sound, 0 if it is damaged; absent until one of "
    "the rare checks was made.",
    "home",
)
LOCKLESS = gauge(
    "hermes_state_db_lockless_holders",
    "Processes that use the database but have lost their lock on it: a careless writer would "
    "destroy what they write.",
    "home",
)
DELETED_WAL = gauge(
    "hermes_state_db_deleted_wal_holders",
    "Processes that write into a deleted WAL: they look healthy and save nothing.",
    "home",
)


@collector(
    "database",
    "the health of state.db",
    SCHEMA,
    PAGES,
    FREE_PAGES,
    PAGE_SIZE,
    INTEGRITY,
)
def collect_health(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        health = home.snapshot.health if home.snapshot is not None else None
        if health is None:
            continue
        if health.integrity_ok is not None:
            samples.add(INTEGRITY, health.integrity_ok, home.label)
        if health.pages == 0:
            continue
        if health.schema_version is not None:
            samples.add(SCHEMA, health.schema_version, home.label)
        samples.add(PAGES, health.pages, home.label)
        samples.add(FREE_PAGES, health.free_pages, home.label)
        samples.add(PAGE_SIZE, health.page_size_bytes, home.label)


@collector("holders", "processes that lost their locks or their WAL", LOCKLESS, DELETED_WAL)
def collect_holders(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.evidence is None:
            continue
        found = (
            (LOCKLESS, home.evidence.lockless_pids),
            (DELETED_WAL, home.evidence.deleted_wal_pids),
        )
        for metric, pids in found:
            if pids is not None:  # None: it cannot be seen
                samples.add(metric, len(pids), home.label)
