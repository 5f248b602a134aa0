"""The agent itself: its scans, what it cannot see, and whether it acts or only observes.

hermes_exporter_scan_timestamp_seconds{home="default"} 1.7e+09
hermes_exporter_blind{home="default",reason="permissions"} 1
"""

from __future__ import annotations

from typing import Final

from exporter.collectors.registry import Label, Samples, collector, gauge
from exporter.collectors.view import HostView
from exporter.evidence.models import Blindness

BLIND_REASONS: Final = (
    *(reason.value for reason in Blindness),
    *("processes", "network_fs", "unknown_fs", "leases", "routing", "run_journal", "database"),
    *("clock", "open_sessions"),
)

BUILD = gauge(
    "hermes_exporter_build_info", "The version of this agent; always 1.", "version", at_most=1
)
SCANNED = gauge(
    "hermes_exporter_scan_timestamp_seconds", "When the last scan of the home finished.", "home"
)
SCAN_DURATION = gauge(
    "hermes_exporter_scan_duration_seconds", "How long the last finished scan took.", "home"
)
BLIND = gauge(
    "hermes_exporter_blind",
    "1 for each thing that this agent cannot see of the home; nothing is ended on such evidence.",
    "home",
    Label("reason", BLIND_REASONS),
    at_most=16,  # the filesystem is a network's or unknown, not both
)
RELOAD = gauge(
    "hermes_exporter_config_last_reload_successful",
    "1 if the configuration was read, 0 if the last reload failed and the old one is in use.",
)
LIMITED = gauge(
    "hermes_exporter_limited",
    "Users or homes that were above a limit at the last scan: descriptors_per_user, "
    "seconds_per_home, open_sessions_per_home.",
    Label("limit", ("descriptors_per_user", "seconds_per_home", "open_sessions_per_home")),
)
REAPER_ENFORCING = gauge(
    "hermes_reaper_enforcing", "1 if dead sessions are ended, 0 if they are only shown.", "home"
)
PRUNE_ENFORCING = gauge(
    "hermes_prune_enforcing", "1 if prune plans are carried out, 0 if they are only shown.", "home"
)


@collector(
    "agent",
    "scans, blindness, configuration and modes of the agent",
    BUILD,
    SCANNED,
    SCAN_DURATION,
    BLIND,
    RELOAD,
    LIMITED,
    REAPER_ENFORCING,
    PRUNE_ENFORCING,
)
def collect(view: HostView, samples: Samples) -> None:
    samples.add(BUILD, 1, view.version)
    samples.add(RELOAD, view.config_reload_successful)
    samples.add(LIMITED, view.limited_users, "descriptors_per_user")
    samples.add(LIMITED, view.slow_homes, "seconds_per_home")
    samples.add(LIMITED, view.large_homes, "open_sessions_per_home")
    for home in view.homes:
        if home.scanned_at is not None:
            samples.add(SCANNED, home.scanned_at, home.label)
            samples.add(SCAN_DURATION, home.scan_seconds, home.label)
        for reason in home.blind:
            samples.add(BLIND, 1, home.label, reason)
        samples.add(REAPER_ENFORCING, home.reaper_enforcing, home.label)
        samples.add(PRUNE_ENFORCING, home.prune_enforcing, home.label)
