"""Checkpoints whose working directory is gone: for good, or only for this host's eyes.

Real releases take the snapshots; the container is a real mount namespace.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.config.prune import Keep, Prune
from exporter.evidence.models import ProcessFacts
from exporter.evidence.procfs import read_stat
from exporter.pruner.decide.inventory import Checkpoint, WorkdirState
from exporter.pruner.models import PruneMemory
from exporter.scan.mount_namespaces import MountNamespaces, Process
from exporter.snapshot import LockAnswer
from tests.real.elsewhere import as_user
from tests.real.hermes import NEWEST, REPOSITORY, Hermes, python_for
from tests.real.holders import holder
from tests.support.evidence import evidence
from tests.support.prune_plans import plan, read_inventory

TAKE = (
    "import sys\n"
    "from tools.checkpoint_manager import CheckpointManager\n"
    "manager = CheckpointManager(enabled=True)\n"
    "manager.new_turn()\n"
    "assert manager.ensure_checkpoint(sys.argv[1], 'a turn')\n"
)


class Home:
    """A home with one project in its store, and the agent's memory of it."""

    def __init__(self, folder: Path) -> None:
        self.hermes: Hermes = python_for(NEWEST)
        self.path = folder / "home"
        self.path.mkdir(mode=0o700)
        self.projects = folder / "projects"
        self.workdir = self.projects / "work"
        self.memory = PruneMemory()
        (self.projects / "another").mkdir(parents=True)  # an empty folder may be a lost mount

    def snapshot(self) -> None:
        """What Hermes does after a turn in the working directory, on the host."""
        self.workdir.mkdir()
        (self.workdir / "notes.txt").write_text("notes")
        subprocess.run(
            [str(self.hermes.python), "-c", TAKE, str(self.workdir)],
            env=self.hermes.environment(self.path),
            cwd=self.path.parent,
            check=True,
            capture_output=True,
        )

    def look(self, days_later: float = 0.0) -> Checkpoint:
        """One look of the agent, which remembers what it saw; return the project."""
        found = read_inventory(self.path, self.memory, days_later=days_later, facts=self._facts())
        self.memory = found.memory
        [project] = found.inventory.checkpoints
        return project

    def orphans(self, days_later: float) -> list[str]:
        """What the policy takes by then."""
        found = read_inventory(self.path, self.memory, days_later=days_later, facts=self._facts())
        actions = plan(found.inventory, Prune(keep=Keep(newest=0))).actions
        return [each.target for each in actions if each.policy == "orphan_checkpoints"]

    def _facts(self) -> ProcessFacts:
        if not (self.path / "state.db").exists():
            return ProcessFacts(blind=(), lock_probe=LockAnswer.FREE)
        return ProcessFacts(holders=evidence(self.path).holders, blind=())

    @contextmanager
    def container(self) -> Iterator[int]:
        """A Hermes with the database open that has its own folder at the place of the projects."""
        here, work = shlex.quote(str(self.projects)), shlex.quote(str(self.workdir))
        script = f'mount -t tmpfs none {here} && mkdir {work} && touch {work}/notes && exec "$@"'
        wrapper = ["unshare", "--mount", "sh", "-c", script, "-"]
        with holder(self.hermes, self.path, wrapper=wrapper) as running:
            yield running.process.pid


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_folder_that_the_agent_saw_and_that_was_removed_is_gone(home: Home) -> None:
    home.snapshot()
    assert home.look().workdir is WorkdirState.PRESENT
    shutil.rmtree(home.workdir)
    assert home.look().workdir is WorkdirState.MISSING
    assert home.orphans(days_later=0.5) == []
    assert len(home.orphans(days_later=2)) == 1


def test_a_folder_that_the_agent_never_saw_may_be_on_another_host(home: Home) -> None:
    """A container's, or another machine's that shares the home: nothing is said of it."""
    home.snapshot()
    shutil.rmtree(home.workdir)
    assert home.look().workdir is WorkdirState.UNKNOWN
    assert home.orphans(days_later=30) == []


def test_the_folder_of_a_running_container_is_not_gone(home: Home) -> None:
    home.snapshot()
    home.look()
    shutil.rmtree(home.workdir)
    with home.container() as pid:
        assert home.look().workdir is WorkdirState.UNKNOWN
        assert home.orphans(days_later=30) == []
        subprocess.run(
            ["nsenter", "--mount", f"--target={pid}", "rm", "-r", str(home.workdir)], check=True
        )
        assert home.look().workdir is WorkdirState.MISSING
        # When it went in there is not known: it counts from when that was first seen.
        assert home.orphans(days_later=0.5) == []
        assert len(home.orphans(days_later=2)) == 1
    assert len(home.orphans(days_later=2)) == 1


def test_the_root_of_a_mount_goes_with_the_mount(home: Home) -> None:
    """A disk that is pulled out takes the folder it was mounted on along."""
    home.snapshot()
    subprocess.run(["mount", "-t", "tmpfs", "none", home.workdir], check=True)
    try:
        assert home.look().workdir is WorkdirState.PRESENT
    finally:
        subprocess.run(["umount", home.workdir], check=True)
    shutil.rmtree(home.workdir)
    assert home.look().workdir is WorkdirState.UNKNOWN
    assert home.orphans(days_later=30) == []


# As other processes see it


@contextmanager
def somewhere(script: str) -> Iterator[Process]:
    """A process with its own mounts, after this script."""
    command = ["unshare", "--mount", "sh", "-c", f"{script}\necho ready; exec cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process_of(process.pid)
        finally:
            process.kill()


def process_of(pid: int) -> Process:
    found = read_stat("/proc", pid)
    assert found is not None
    return Process(pid, found.start_ticks)


def is_gone(path: Path, *processes: Process) -> bool:
    return MountNamespaces(processes).is_gone(os.fsencode(path))


def test_it_must_be_gone_for_every_process(tmp_path: Path) -> None:
    work = tmp_path / "work"
    own = process_of(os.getpid())
    assert is_gone(work)
    assert is_gone(work, own)
    with (
        somewhere("true") as without,
        somewhere(f"mount -t tmpfs none {tmp_path} && mkdir {work}") as there,
    ):
        assert is_gone(work, own, without)
        assert not is_gone(work, own, without, there)
        assert is_gone(tmp_path / "other" / "work", own, without, there)


def test_behind_a_link_it_may_exist(tmp_path: Path) -> None:
    """An absolute link of a container leads somewhere else on the host."""
    script = f"mount -t tmpfs none {tmp_path} && mkdir {tmp_path}/a && ln -s /mnt {tmp_path}/b"
    with somewhere(script) as process:
        assert is_gone(tmp_path / "a" / "work", process)
        assert not is_gone(tmp_path / "b" / "work", process)
        assert not is_gone(tmp_path / "b", process)


def test_a_process_that_has_ended_or_may_not_be_looked_at_tells_nothing(tmp_path: Path) -> None:
    with somewhere("true") as process:
        another = Process(process.pid, process.start_ticks + 1)
        assert not is_gone(tmp_path / "work", another)
        program = (
            "import sys\n"
            "from exporter.scan.mount_namespaces import MountNamespaces, Process\n"
            f"process = Process({process.pid}, {process.start_ticks})\n"
            "print(MountNamespaces([process]).is_gone(sys.argv[1].encode()))\n"
        )
        said = subprocess.run(
            [*as_user(65534), sys.executable, "-c", program, "/var/tmp/no-such-folder"],
            stdout=subprocess.PIPE,
            check=True,
            cwd=REPOSITORY,
            text=True,
        ).stdout
        assert said == "False\n"
        assert is_gone(tmp_path / "work", process)
    assert not is_gone(tmp_path / "work", process)


def test_a_network_mount_of_a_container_is_not_asked(tmp_path: Path) -> None:
    """FUSE stands for all that may hang; nothing below it is looked up."""
    proc = tmp_path / "proc"
    (proc / "7" / "ns").mkdir(parents=True)
    (proc / "self" / "ns").mkdir(parents=True)
    for pid, namespace in (("self", "mnt:[1]"), ("7", "mnt:[2]")):
        os.symlink(namespace, proc / pid / "ns" / "mnt")
        os.symlink("/", proc / pid / "root")
    (proc / "7" / "stat").write_text("7 (x) S " + " ".join(["1"] * 40))
    work = Path("/no-such-mount/work")
    line = "21 1 0:1 / /no-such-mount rw - {} none rw\n"
    (proc / "7" / "mountinfo").write_text(line.format("ext4"))
    view = MountNamespaces([Process(7, 1)], str(proc))
    assert view.is_gone(os.fsencode(work))
    (proc / "7" / "mountinfo").write_text(line.format("fuse.sshfs"))
    assert not view.is_gone(os.fsencode(work))
    (proc / "7" / "mountinfo").unlink()
    assert not view.is_gone(os.fsencode(work))
