"""Tell if a cgroup is frozen, in both versions of cgroups."""

from __future__ import annotations

from typing import Final

_ROOT: Final = "/sys/fs/cgroup"


def is_frozen(membership: bytes, root: str = _ROOT) -> bool:
    """True if a process with this /proc/PID/cgroup is frozen; False if the kernel does not show it.

    The kernel's files give the effective state of the group, even if an ancestor was frozen.
    """
    for line in membership.decode(errors="surrogateescape").splitlines():
        _, controllers, path = line.split(":", 2)
        if path == "/":
            continue  # the root cannot be frozen
        if controllers == "":
            folders = [f"{root}{path}", f"{root}/unified{path}"]
            if any("frozen 1" in _read(f"{folder}/cgroup.events") for folder in folders):
                return True
        elif "freezer" in controllers.split(","):
            # FREEZING: some of its threads are frozen already.
            state = _read(f"{root}/freezer{path}/freezer.state").strip()
            if state in {"FROZEN", "FREEZING"}:
                return True
    return False


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read(4096)
    except OSError:
        return ""
