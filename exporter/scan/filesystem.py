"""The filesystem that holds a home: its size, and whether its locks can be trusted."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import Final

from exporter.snapshot import Filesystem

LOCAL_KINDS: Final = frozenset(
    {"apfs", "bcachefs", "btrfs", "ecryptfs", "ext2", "ext3", "ext4", "f2fs", "hfs", "jfs"}
    | {"nilfs2", "overlay", "ramfs", "reiserfs", "tmpfs", "ufs", "xfs", "zfs"}
)
"""All writers are on this kernel. For any kind not listed here or below it is unknown."""
NETWORK_KINDS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "glusterfs", "afs", "lustre"}
)
"""Another machine may write too: a lock that is free here proves nothing."""
UNKNOWN: Final = "unknown"


def filesystem_of(path: str, mountinfo: str = "/proc/self/mountinfo") -> Filesystem | None:
    """Return size and kind; None if statvfs fails."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return Filesystem(
        size_bytes=found.f_blocks * found.f_frsize,
        avail_bytes=found.f_bavail * found.f_frsize,
        kind=_kind(path, mountinfo),
        used_bytes=(found.f_blocks - found.f_bfree) * found.f_frsize,
        identity=_identity(path, found.f_fsid),
    )


def _identity(path: str, filesystem_id: int) -> str:
    """Return 8 hex digits; the device stands in where a filesystem has no id of its own."""
    try:
        known = f"id {filesystem_id}" if filesystem_id else f"device {os.stat(path).st_dev}"
    except OSError:
        return ""
    return sha256(known.encode()).hexdigest()[:8]


def _kind(path: str, mountinfo: str) -> str:
    """Return the type of the path's mount: the longest mount point, the last of equal ones."""
    best, kind = "", UNKNOWN
    try:
        with open(mountinfo, "rb") as lines:
            for line in lines:
                fields, _, tail = line.partition(b" - ")
                columns = fields.split()
                mount_point = _unescape(columns[4])
                leads_there = path == mount_point or path.startswith(mount_point.rstrip("/") + "/")
                if leads_there and len(mount_point) >= len(best):
                    best, kind = mount_point, os.fsdecode(tail.split()[0])
    except (OSError, IndexError):
        return UNKNOWN
    return kind[:32]


def _unescape(mount_point: bytes) -> str:
    """Decode a mount point: mountinfo writes blanks and backslashes in octal."""
    return os.fsdecode(
        re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), mount_point)
    )
