"""Build the scan request for a home's worker: settings, limits and evidence in one request."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from exporter.agent.home_state import HomeState, blindness
from exporter.agent.readings_folder import ReadingsFolder
from exporter.collectors.labels import LabelFamily, label_value
from exporter.config.settings import Settings
from exporter.discovery.homes import Home
from exporter.evidence.liveness import lease_alive, start_times
from exporter.evidence.models import HomeEvidence, HomeFiles, LeaseFact, ProcessFacts
from exporter.evidence.openers import KnownHolder
from exporter.reaper.models import ReaperRules
from exporter.snapshot import DatabaseProbe, Probe
from exporter.workers.protocol import ScanRequest, Want

_HOLDERS_MAX: Final = 500
"""Limit on processes, and on sessions they name, for verdicts; more can only be an attack."""


@dataclass(frozen=True, slots=True)
class ScanPurpose:
    """What a scan is for: the plans to make, and what it need not read."""

    want: Callable[[HomeState], Want] | None = None
    """Returns the plans wanted for a home; None: the plans that are due by the configuration."""
    walk_disk: bool = True
    list_sessions: bool = True
    presume_by_clock: bool = False
    """Idle time by Hermes's own timestamps counts as if an agent had watched it."""
    include_undone: bool = False
    """What an undo opened again is not held for that."""
    readings: ReadingsFolder | None = None
    """For a command that only shows figures: start with what an earlier one read, and keep it."""


def scan_request(
    home: Home,
    look: Probe,
    surveyed: Mapping[str, HomeEvidence],
    *,
    settings: Settings,
    clock_stepped: bool,
    watched: bytes,
    watermark: int,
    homes: Collection[str],
    file_patterns: Sequence[str],
    every_session: bool,
    purpose: ScanPurpose,
    want: Want,
    report_usage: bool,
) -> ScanRequest:
    """Build the request to read a home that has been probed.

    `homes` are the paths of all homes: a profile that is one of them is not counted in its root.
    """
    databases = [look.state, *look.boards]
    evidence = {each.name: surveyed.get(target_key(home.path, each.name)) for each in databases}
    own = settings.for_home(home)
    judge_now = every_session or want != Want()
    main = evidence["state.db"]
    return ScanRequest(
        home=home.path,
        owner=home.owner,
        openable=[name for name, found in evidence.items() if _may_open(found)],
        holders=[
            KnownHolder(holder.pid, holder.shm_inode)
            for found in evidence.values()
            if found is not None
            for holder in found.holders
            if holder.shm_inode is not None and not holder.forked_copy
        ],
        quiet=main is not None and not main.holders and not main.blind,
        watermark=watermark,
        excluded_profiles=[
            name
            for name in home.profile_names
            if os.path.join(home.path, "profiles", name) in homes
        ],
        trivial_max_messages=own.prune.policies.trivial_sessions.max_messages or 5,
        marathon_max_messages=settings.marathon.max_messages,
        marathon_near_ratio=settings.marathon.near_ratio,
        stale_after_seconds=own.prune.policies.stale_checkpoints.older_than_seconds,
        full_interval_seconds=settings.scan.full_interval_seconds,
        open_sessions_max=settings.limits.open_sessions_per_home,
        file_patterns=list(file_patterns),
        every_session=every_session,
        facts=process_facts(look, main, clock_stepped),
        rules=ReaperRules(
            sources=own.reaper.sources,
            min_idle_seconds=own.reaper.min_idle_seconds,
            heartbeat_timeout_seconds=own.reaper.heartbeat_timeout_seconds,
            confirmations=own.reaper.confirmations,
            presume_server_seconds=own.reaper.presume_after.beside_servers(),
            presume_chat_seconds=own.reaper.presume_after.beside_chats(),
            presume_by_clock=purpose.presume_by_clock,
            interval_seconds=0.0 if judge_now else own.reaper.interval_seconds,
            end_reason=own.reaper.end_reason,
        ),
        undone_seconds=0.0 if purpose.include_undone else own.prune.keep.undone_seconds,
        watched=watched,
        kept=purpose.readings.load(home.path) if purpose.readings is not None else None,
        walk_disk=purpose.walk_disk,
        list_sessions=purpose.list_sessions,
        report_usage=report_usage,
        want=want,
    )


def process_facts(look: Probe, evidence: HomeEvidence | None, clock_stepped: bool) -> ProcessFacts:
    """Return what is known of the home's processes, for the verdicts on its sessions."""
    if evidence is None:
        return ProcessFacts()
    named = sum(len(holder.sessions) for holder in evidence.holders)
    if len(evidence.holders) > _HOLDERS_MAX or named > _HOLDERS_MAX:
        return ProcessFacts(blind=("too_many_processes",))
    started = start_times()
    return ProcessFacts(
        holders=evidence.holders,
        leases=tuple(
            LeaseFact(
                lease.session_id,
                label_value(LabelFamily.SOURCE, lease.surface),
                lease.pid,
                lease_alive(lease.pid, lease.process_started_at, evidence, started),
            )
            for lease in look.leases
        ),
        lock_probe=look.state.lock_probe,
        blind=blindness(look, evidence),
        clock_stepped=clock_stepped,
    )


def target_key(path: str, name: str) -> str:
    """Return the key of one database in the survey of all homes."""
    return f"{path}\0{name}"


def survey_targets(home: Home, look: Probe, settings: Settings) -> list[HomeFiles]:
    """Return the databases of a home, so that the survey finds their holders."""
    trusted = settings.for_home(home).reaper.private_homes
    private = trusted and look.private and home.owner == os.geteuid()
    return [_files(home, look, each, private) for each in (look.state, *look.boards)]


def _files(home: Home, look: Probe, each: DatabaseProbe, private: bool) -> HomeFiles:
    return HomeFiles(
        key=target_key(home.path, each.name),
        database=each.database,
        wal=each.wal,
        shm=each.shm,
        wal_mode=each.wal_mode,
        gateway=look.gateway if each is look.state else None,
        lock_probe=each.lock_probe,
        name=os.path.basename(each.name),
        directory=os.path.dirname(os.path.join(home.path, each.name)),
        owner=home.owner,
        private=private,
    )


def _may_open(found: HomeEvidence | None) -> bool:
    """True if no process is known to use -shm without a lock.

    False without a survey. If locks cannot be seen, such a process is unknown: True.
    """
    return found is not None and not any(each.lockless_shm for each in found.holders)
