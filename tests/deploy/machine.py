"""A Debian with its own real systemd, in namespaces of this host: what a package is installed on.

It has its own processes, mounts, devices and, if asked for, network; its cgroups are below one of
ours, without controllers, so that limits of memory are read but not enforced.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.docker_engine import base_image
from tests.real.waiting import wait_until

_BOOT = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm .outside
for name in null zero full random urandom tty; do
    touch dev/$name
    mount --bind /dev/$name dev/$name
done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
pivot_root . .outside
umount -l /.outside
rmdir /.outside
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --log-target=console --show-status=0
"""


class Machine:
    """One that has booted."""

    def __init__(self, root: Path, pid: int) -> None:
        self.root = root
        self.pid = pid
        """Its first process, as this host numbers it."""

    def run(self, *words: str | Path, check: bool = True, folder: str = "/") -> str:
        """Run a command on it as root, and return what it says."""
        done = subprocess.run(
            [
                *("nsenter", "--all", "--target", str(self.pid), "env", f"--chdir={folder}"),
                *("-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"),
                *words,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{words} said {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def shell(self, lines: str, folder: str = "/") -> str:
        return self.run("sh", "-ec", lines, folder=folder)


@contextmanager
def installed() -> Iterator[Path]:
    """A folder with a small Debian that has never been booted."""
    with tempfile.TemporaryDirectory(prefix="machine-", ignore_cleanup_errors=True) as name:
        root = Path(name) / "root"
        root.mkdir()
        subprocess.run(["tar", "-C", root, "-xf", base_image()], check=True)
        (root / "etc/resolv.conf").unlink(missing_ok=True)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        yield root


@contextmanager
def booted(root: Path, network: str | None = None) -> Iterator[Machine]:
    """Boot what is in the folder, in the network namespace of that name or in the host's."""
    group = _cgroups() / f"machine-{os.getpid()}-{root.parent.name}"
    group.mkdir()
    enter = ["ip", "netns", "exec", network] if network else []
    namespaces = ["unshare", "--pid", "--mount", "--uts", "--ipc", "--cgroup", "--fork"]
    join = f'echo $$ >{group}/cgroup.procs && exec "$@"'
    log = root.parent / "console"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [
                *("sh", "-c", join, "-", *enter, *namespaces, "--kill-child"),
                *("sh", "-c", _BOOT, "-", root),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            first = wait_until(lambda: _first_process(process, log), "systemd has begun")
            machine = Machine(root, first)
            wait_until(lambda: _is_up(machine), "the machine is up")
            yield machine
        finally:
            process.kill()
            process.wait()
            wait_until(lambda: _empty(group), "all of the machine's processes are gone")


def _cgroups() -> Path:
    """Where this host has its second kind of cgroups."""
    unified = Path("/sys/fs/cgroup/unified")
    return unified if unified.exists() else Path("/sys/fs/cgroup")


def _first_process(process: subprocess.Popen[bytes], log: Path) -> int | None:
    if process.poll() is not None:
        raise AssertionError(f"it did not boot: {process.returncode}\n{log.read_text()}")
    for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
            return int(pid)
    return None


def _is_up(machine: Machine) -> bool:
    state = machine.run("systemctl", "is-system-running", check=False).strip()
    return state in ("running", "degraded")


def _empty(group: Path) -> bool:
    """Remove the cgroups; the kernel lets go of them when their last process is gone."""
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            return False
    return True
