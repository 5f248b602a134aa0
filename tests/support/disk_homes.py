"""Homes with files in them, and what other programs say about these files."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from exporter.scan.disk.scanner import DiskScanner
from exporter.scan.disk.walk import SETTLE_SECONDS
from exporter.snapshot import DiskReport

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(place: Path, *arguments: str, **environment: str) -> str:
    """Return what git prints, run as a user would."""
    return subprocess.run(
        ["git", *arguments],
        cwd=place,
        env={**_ENVIRONMENT, **environment},
        capture_output=True,
        check=True,
        text=True,
    ).stdout


def make_shadow_repo(checkpoints: Path, name: str, workdir: Path) -> Path:
    """Make a repository as versions before 0.13 made one for each working directory."""
    repo = checkpoints / name
    checkpoints.mkdir(parents=True, exist_ok=True)
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "file.txt").write_text(name)
    place = {"GIT_DIR": str(repo), "GIT_WORK_TREE": str(workdir)}
    git(workdir, "init", "--quiet", **place)
    (repo / "HERMES_WORKDIR").write_text(f"{workdir}\n")
    commit_in_repo(repo, workdir)
    return repo


def commit_in_repo(repo: Path, workdir: Path) -> None:
    place = {"GIT_DIR": str(repo), "GIT_WORK_TREE": str(workdir)}
    git(workdir, "add", "-A", **place)
    git(workdir, "commit", "--quiet", "--message", "snapshot", **place)


def make_store(store: Path, names: list[str]) -> Path:
    """Make a store with a ref and an index for each name, configured as Hermes does it."""
    store.parent.mkdir(parents=True, exist_ok=True)
    git(store.parent, "init", "--quiet", "--bare", str(store))
    for key, value in (
        ("user.email", "hermes@local"),
        ("user.name", "Hermes Checkpoint"),
        ("commit.gpgsign", "false"),
        ("tag.gpgSign", "false"),
        ("gc.auto", "0"),
    ):
        git(store, "config", key, value, GIT_DIR=str(store))
    (store / "indexes").mkdir()
    (store / "projects").mkdir()
    for name in names:
        add_ref(store, name)
    return store


def add_ref(store: Path, name: str) -> None:
    place = {"GIT_DIR": str(store)}
    tree = git(store, "write-tree", GIT_INDEX_FILE=str(store / "indexes" / name), **place).strip()
    commit = git(store, "commit-tree", tree, "-m", name, **place).strip()
    git(store, "update-ref", f"refs/hermes/{name}", commit, **place)
    (store / "indexes" / name).write_bytes(b"DIRC")


def add_project(store: Path, name: str, workdir: Path, last_touch: float) -> None:
    told = {"workdir": str(workdir), "created_at": 1.0, "last_touch": last_touch}
    (store / "projects" / f"{name}.json").write_text(json.dumps(told))


def settle(*places: Path) -> None:
    """Wait until no change of these folders is too young to be trusted."""
    youngest = max(os.lstat(place).st_ctime for place in places)
    while time.time() - youngest <= SETTLE_SECONDS:
        time.sleep(0.05)


class Watched:
    """A home with its scanner, whose clock advances 15 s from scan to scan."""

    def __init__(self, home: Path, scanner: DiskScanner | None = None) -> None:
        self.home = home
        self.excluded: frozenset[str] = frozenset()
        self.monotonic = 1000.0
        self.scanner = scanner or DiskScanner(str(home), processes=1)

    def scan(self, seconds_later: float = 15.0) -> DiskReport:
        self.monotonic += seconds_later
        return self.scanner.scan(
            excluded_profiles=self.excluded, now=time.time(), monotonic=self.monotonic
        )

    def is_as_du(self) -> bool:
        """Scan; return True if the kinds add up to what du says."""
        return total_bytes(self.scan()) == du(self.home, self.excluded)

    def assert_as_du(self) -> DiskReport:
        """Scan; the kinds must add up to what du and find say."""
        report = self.scan()
        assert total_bytes(report) == du(self.home, self.excluded)
        assert total_files(report) == files_in(self.home, self.excluded)
        return report


def total_bytes(report: DiskReport) -> int:
    return sum(usage.allocated_bytes for usage in report.usage.values())


def total_files(report: DiskReport) -> int:
    return sum(usage.files for usage in report.usage.values())


def du(place: Path, without_profiles: frozenset[str] = frozenset()) -> int:
    """Return allocated bytes as the real du counts them."""
    excluded = [f"--exclude={place}/profiles/{name}" for name in without_profiles]
    said = subprocess.run(
        ["du", "-s", "--block-size=1", *excluded, str(place)], capture_output=True, check=False
    )
    return int(said.stdout.split()[0])


def files_in(place: Path, without_profiles: frozenset[str] = frozenset()) -> int:
    """Return the number of entries that are not folders, as the real find counts them."""
    pruned: list[str] = []
    for name in without_profiles:
        pruned += ["-path", f"{place}/profiles/{name}", "-prune", "-o"]
    said = subprocess.run(
        ["find", str(place), *pruned, "!", "-type", "d", "-printf", "x"],
        capture_output=True,
        check=False,
    )
    return len(said.stdout)
