"""What the agent can see of a home, what it cannot, and how to grant it: the answer of `check`."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from exporter.collectors.view import HomeView
from exporter.config.settings import Settings
from exporter.scan.access import DeniedPart
from exporter.scan.probe import READ_ONLY
from exporter.snapshot import LockAnswer, Trouble
from exporter.text import format_pids
from exporter.web.listen import is_local

_ROOT_WITHOUT_RIGHTS: Final = (
    "the agent is root without CAP_SYS_PTRACE, so other users' processes hide their descriptors",
    "give it CAP_SYS_PTRACE: CapabilityBoundingSet= of its unit, docker run --cap-add SYS_PTRACE",
)
_CANNOT: Final[dict[str, tuple[str, str, str]]] = {
    "permissions": (
        "see who has the database open",
        "some processes belong to other users and hide their descriptors",
        "run as root; in a home of mode 0700, `reaper.private_homes: true` may do",
    ),
    "hidepid": (
        "see other users' processes",
        "/proc is mounted with hidepid, or the service has ProtectProc",
        "add the agent's group to the mount's gid= option, or remove ProtectProc",
    ),
    "pid_namespace": (
        "see processes outside this PID namespace",
        "the agent runs in a container of its own",
        "run it with the host's PID namespace (docker run --pid=host)",
    ),
    "no_proc": (
        "see processes",
        "/proc is not mounted, or has no /proc/locks",
        "mount /proc",
    ),
    "unreadable": (
        "see every process that may have the database open",
        "a process could not be examined: a system call is denied, or memory or files run out",
        "allow statx in its sandbox; raise LimitNOFILE= of its unit",
    ),
    "overlay": (
        "see who uses the home through an overlay mount",
        "it is in the upper layer of one: processes there share neither inodes nor locks with it",
        "watch the home where Hermes runs, on the merged view",
    ),
    "limited": (
        "see all open files of a user who can write the home",
        "the user has more of them than limits.descriptors_per_user",
        "raise limits.descriptors_per_user, or let the user close some",
    ),
    "open_sessions": (
        "judge its open sessions",
        "it has more of them than limits.open_sessions_per_home, so only counts are kept",
        "raise limits.open_sessions_per_home, and LimitDATA= and MemoryMax= of the service",
    ),
    "platform": (
        "see locks and other users' descriptors",
        "this system does not offer them",
        "nothing can be granted; sessions stay unknown here",
    ),
    "network_fs": (
        "know who else uses the home",
        "it is on a network filesystem: another host may have it open",
        "run the agent where the filesystem is local",
    ),
    "unknown_fs": (
        "know whether its locks can be trusted",
        "its filesystem is of a kind that another machine may write too, or cannot be told",
        "mount /proc, or run the agent where the filesystem is local",
    ),
    "clock": (
        "trust the ages of files and sessions, so nothing is pruned",
        "the clock was set by more than an hour since the host was started",
        "nothing to grant; it ends with the next start of the host",
    ),
    "leases": (
        "read runtime/active_sessions.json",
        "it is there but cannot be understood",
        "look at the file; Hermes rewrites it when it next starts",
    ),
    "routing": (
        "tell which chats still lead to a session",
        "gateway_routing or sessions/sessions.json cannot be understood",
        "look at sessions/sessions.json; Hermes mends it when the gateway next saves",
    ),
    "run_journal": (
        "know what earlier runs did and what an undo gave back",
        ".hermes-exporter/journal.db is in use for long, of a newer version, or broken",
        "upgrade hermes-exporter if a newer one wrote it; `prune --yes` mends a broken one",
    ),
}

_TROUBLES: Final[dict[Trouble, str]] = {
    Trouble.PERMISSION: "run as the home's owner or as root",
    Trouble.NOT_A_FILE: "move away what is in the place of state.db",
    Trouble.CORRUPT: "stop Hermes, keep a copy, and let `hermes doctor` repair it",
    Trouble.NOT_A_DATABASE: "stop Hermes, keep a copy, and restore state.db from a snapshot",
    Trouble.LOCKLESS_SHM_HOLDER: "restart the Hermes process that lost its lock",
    Trouble.TIMEOUT: "look at the filesystem that holds the home",
    Trouble.HOME_GONE: "correct the path, or its permissions",
}


_CAPABILITIES: Final = (
    "give it these: CapabilityBoundingSet= of its unit, --cap-add of its container "
    "(docs/least-privilege.md), or run it as the home's owner"
)


_REAL_ONE: Final = "put the real file or folder there"


_FOLLOW_FROM_DENIAL: Final = frozenset({"database", "leases", "routing", "run_journal"})
"""What cannot be known of a home because a part of it may not be read."""


def capabilities(
    home: HomeView, owner: str = "its owner", denied: Sequence[DeniedPart] = ()
) -> dict[str, Any]:
    """Return one home's entry in the report of `check`, the root cause first.

    `denied` are the parts that the owner may not read; what only follows from them is left out.
    """
    can: list[str] = []
    cannot = [_denial(home.path, owner, part) for part in denied]
    if home.up and home.snapshot is not None and not home.snapshot.database_present:
        why = "there is no state.db; is this a HERMES_HOME?"
        cannot.append(_entry("read a database", why, "Hermes makes it when it first starts"))
    elif home.up:
        can.append("read the database")
    elif not denied:
        fix = _TROUBLES.get(home.trouble, "try again; the log of serve tells when it recovers")
        if " is a symlink" in home.detail:
            fix = f"{_REAL_ONE}, or name the place that it leads to"
        if home.trouble is Trouble.FOREIGN_OWNER or "not to the home's owner" in home.detail:
            fix = f"chown -R {shlex.quote(owner.removeprefix('uid '))} {shlex.quote(home.path)}"
        elif home.trouble is Trouble.PERMISSION and os.geteuid() == 0:
            fix = "look at its mount and at the security modules of this host: root may not read it"
        if home.trouble is Trouble.WORKER_DIED and "lacks CAP_" in home.detail:
            fix = _CAPABILITIES
        cannot.append(_entry("read the database", home.detail or home.trouble.value, fix))
    if home.probe is not None and home.probe.state.lock_probe is not LockAnswer.BLIND:
        can.append("ask the kernel who holds its locks")
    if home.evidence is not None and not home.evidence.blind:
        can.append("see every process that has it open")
    cannot.extend(_losses(home))
    follow = _FOLLOW_FROM_DENIAL if denied else frozenset[str]()
    if any(not part.name for part in denied):
        follow |= {"unknown_fs"}
    for reason in home.blind:
        if reason in _CANNOT and reason not in follow:
            what, why, grant = _CANNOT[reason]
            if reason == "permissions" and os.geteuid() == 0:
                why, grant = _ROOT_WITHOUT_RIGHTS
            if reason == "run_journal":
                why, grant = why_no_journal(home.runs.why)
            cannot.append(_entry(what, why, grant))
    return {"home": home.label, "path": home.path, "can": can, "cannot": cannot}


def why_no_journal(said: str) -> tuple[str, str]:
    """Return why a run journal cannot be read, and the mend; `said` is what reading it said."""
    _, why, grant = _CANNOT["run_journal"]
    if " is a symlink" in said:
        grant = _REAL_ONE
    elif os.strerror(errno.EACCES) in said:
        grant = "`hermes-exporter check` says what to change"
    return said or why, grant


def no_writing(path: str, why: str) -> dict[str, str]:
    """Return the entry of a home that can be read, and in which nothing can be changed."""
    file = shlex.quote(os.path.join(path, "state.db") if why.endswith("state.db") else path)
    grant = f"chmod u+w {file}"
    if why == READ_ONLY:
        grant = f"mount it writable (`findmnt -T {file}`); the unit of a service needs enforce.conf"
    return _entry("reap, prune, undo or purge here", why, grant)


def runbook_advice(settings: Settings, addresses: Sequence[str]) -> list[str]:
    """Return how others could open the runbooks that alerts link to, if they cannot.

    `addresses` are those on which the agent listens; empty: they are not known.
    """
    if settings.alerts.runbook_base or not all(map(is_local, addresses)):
        return []
    where = (
        f"only this host can open {' and '.join(addresses)}"
        if addresses
        else "only this host can open them unless --web.listen-address says otherwise"
    )
    fix = "set alerts.runbook_base and write the rules with it (docs/alerts.md)"
    return [f"alerts link to the runbooks of the agent, and {where}; for others, {fix}"]


def needs_attention(home: HomeView) -> bool:
    """True if something cannot be seen that verdicts and runs need, or writes are being lost."""
    return not home.up or bool(home.blind) or is_losing_writes(home)


def _denial(home: str, owner: str, part: DeniedPart) -> dict[str, str]:
    path = part.path(home)
    if part.levels_up:
        why = f"{owner} may not enter {path}"
        right = "u+rwx" if part.is_own else "o+x"
        return _entry("reach the home", why, f"chmod {right} {shlex.quote(path)}")
    verb = "enter" if part.is_folder else "read"
    return _entry(
        f"read {part.name or 'the home'}",
        f"{owner} may not {verb} {path} (mode {part.mode:04o})",
        f"chmod {'u+rwx' if part.is_folder else 'u+rw'} {shlex.quote(path)}",
    )


def is_losing_writes(home: HomeView) -> bool:
    """True if a Hermes process loses what it writes, or is about to."""
    return any(_losses(home))


def _losses(home: HomeView) -> Iterator[dict[str, str]]:
    deleted = (home.evidence.deleted_wal_pids if home.evidence else None) or []
    lockless = (home.evidence.lockless_pids if home.evidence else None) or []
    if deleted:
        who = format_pids(deleted)
        yield _entry(
            f"see what is written by {who}",
            "it goes into a database or WAL that was deleted, and is lost when the process ends",
            f"restart {who}; runbook HermesPersistenceDead tells what to rescue before",
        )
    endangered = [pid for pid in lockless if pid not in deleted]
    if endangered:
        who = format_pids(endangered)
        yield _entry(
            "write to the home",
            f"{who} lost the locks on state.db: who opens it next may delete the WAL under it",
            f"restart {who}, and open state.db with nothing until then; "
            "see runbook HermesLocklessHolders",
        )


def _entry(what: str, why: str, grant: str) -> dict[str, str]:
    return {"what": what, "why": why, "grant": grant}
