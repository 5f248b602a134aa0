"""The part of a survey that psutil can do on systems without Linux's /proc.

It sees the descriptors of processes of the same user, and no locks. So it can prove that a process
has a database open, and never that no process has. Every answer says so: `platform`.

On Linux the survey does not use psutil. It reads a process through one open /proc folder, so that
a reused PID is noticed, and needs what psutil leaves out: inodes of deleted files, locks, start
ticks, stopped and frozen processes, namespaces. Start times alone take psutil 35 µs instead of 10.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import psutil

from exporter.evidence.models import (
    Blindness,
    GatewayEvidence,
    GatewayState,
    Holder,
    HomeEvidence,
    HomeFiles,
    NamedSession,
    PossibleHome,
    Survey,
)
from exporter.evidence.procfs import split_link
from exporter.hermes.process_kinds import DATABASE_NAME, classify
from exporter.snapshot import FileIdentity, GatewayFiles, Timestamp

_TICKS_PER_SECOND: Final = 100
"""Hermes writes a gateway's start time in hundredths of a second where there are no ticks."""
_LIMITS: Final = (Blindness.PLATFORM,)


class _SeenProcess(NamedTuple):
    holder: Holder
    uid: int
    files: dict[str, FileIdentity]
    """Databases and sidecars that it has open, by path."""


def survey(targets: Sequence[HomeFiles]) -> Survey:
    """Return which of the processes that we may read have these databases open."""
    names = {DATABASE_NAME, *(home.name for home in targets)}
    seen, unreadable = list[_SeenProcess](), False
    for process in psutil.process_iter():
        try:
            found = _read_process(process, names)
        except psutil.NoSuchProcess:
            continue  # it ended during the scan
        except (psutil.Error, OSError):
            unreadable = True
            continue
        if found is not None:
            seen.append(found)
    blind = (*_LIMITS, Blindness.PERMISSIONS) if unreadable else _LIMITS
    return Survey(
        homes={
            home.key: HomeEvidence(
                holders=tuple(each.holder for each in seen if home.files & {*each.files.values()}),
                gateway=judge_gateway(home.gateway) if home.gateway else None,
                blind=blind,
            )
            for home in targets
        },
        candidates=tuple(
            PossibleHome(os.path.dirname(path), each.uid, identity)
            for each in seen
            for path, identity in each.files.items()
            if os.path.basename(path) == DATABASE_NAME
        ),
        blind=blind,
    )


def started_at(pid: int) -> Timestamp | None:
    """Return when this living process began; None if there is none, OSError if hidden."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
    except psutil.Error as error:
        raise PermissionError(errno.EPERM, str(error)) from error


def judge_gateway(files: GatewayFiles) -> GatewayEvidence:
    """Judge by the recorded process alone."""
    if files.pid is None or files.start_ticks is None:
        return GatewayEvidence(GatewayState.UNKNOWN)
    try:
        began = started_at(files.pid)
    except OSError:
        return GatewayEvidence(GatewayState.UNKNOWN)
    if began is None or abs(began * _TICKS_PER_SECOND - files.start_ticks) > 1:
        return GatewayEvidence(GatewayState.DOWN)
    return GatewayEvidence(GatewayState.UP, began)


def _read_process(process: psutil.Process, names: Collection[str]) -> _SeenProcess | None:
    files: dict[str, FileIdentity] = {}
    for opened in process.open_files():
        if split_link(opened.path, names) is not None:
            found = os.stat(opened.path)
            files[opened.path] = FileIdentity(found.st_dev, found.st_ino)
    if not files:
        return None
    role = classify(b"\0".join(os.fsencode(word) for word in process.cmdline()))
    began = process.create_time()
    holder = Holder(
        pid=process.pid,
        start_ticks=round(began * _TICKS_PER_SECOND),
        started_at=began,
        namespace_pid=process.pid,
        kind=role.kind,
        may_resume=role.may_resume,
        shm_inode=None,  # only looked at where locks are shown
        sessions=(NamedSession(role.session_id, role.how),) if role.session_id and role.how else (),
    )
    return _SeenProcess(holder, process.uids().effective, files)
