"""Figures of a home's files: always equal to du, for any contents and any change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from itertools import count
from pathlib import Path
from random import Random

import pytest
from msgspec import structs

from exporter.hermes.checkpoints import CheckpointLayout, ProjectState, StoreReader
from exporter.scan.disk.scanner import DiskScanner
from exporter.snapshot import DiskKind, DiskReport
from tests.support.disk_homes import (
    Watched,
    add_project,
    add_ref,
    commit_in_repo,
    du,
    files_in,
    make_shadow_repo,
    make_store,
    settle,
    total_bytes,
)

A, B, C = "a" * 16, "b" * 16, "c" * 16
DAY = 86400.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make a home with something of every kind."""
    home = tmp_path / "home"
    for folder in ("sessions/saved", "logs/curator/run", "cache/images", "pastes", "cron/output/j"):
        (home / folder).mkdir(parents=True)
    for folder in ("skills/a/b", "profiles/work/sessions", "profiles/play", ".hermes-exporter/t"):
        (home / folder).mkdir(parents=True)
    sizes = {
        "state.db": 50_000,
        "state.db-wal": 9000,
        "state.db-shm": 32768,
        "state.db.malformed-backup-20260101_000000": 50_000,
        "config.yaml": 10,
        "sessions/session_20260101_000000_abcdef.json": 20_000,
        "sessions/20260101_000000_abcdef01.jsonl": 5000,
        "sessions/request_dump_20260101_000000_abcdef_20260101_000001_0.json": 70_000,
        "sessions/sessions.json": 100,
        "sessions/saved/mine.json": 3000,
        "logs/agent.log": 6000,
        "logs/curator/run/out.txt": 1,
        "cache/images/x.png": 12_345,
        "pastes/p.txt": 1,
        "cron/output/j/1.md": 77,
        "skills/a/b/SKILL.md": 4097,
        "profiles/work/state.db": 8192,
        "profiles/work/sessions/session_x.json": 8193,
        "profiles/play/state.db": 1,
        ".hermes-exporter/t/session.json.gz": 999,
    }
    for name, size in sizes.items():
        (home / name).write_bytes(os.urandom(size))
    checkpoints = home / "checkpoints"
    make_shadow_repo(checkpoints, A, tmp_path / "work/a")
    make_shadow_repo(checkpoints / "legacy-20260101-000000", B, tmp_path / "work/b")
    make_store(checkpoints / "store", [C])
    add_project(checkpoints / "store", C, tmp_path / "work/a", time.time())
    (checkpoints / ".last_prune").write_text("1.0")
    return home


# What is counted


def test_each_kind_is_what_du_says_of_its_files(home: Path) -> None:
    usage = Watched(home).assert_as_du().usage
    checkpoints = home / "checkpoints"
    expected = {
        DiskKind.STATE_DB: du(home / "state.db"),
        DiskKind.STATE_WAL: du(home / "state.db-wal") + du(home / "state.db-shm"),
        DiskKind.LOGS: du(home / "logs"),
        DiskKind.CACHE: du(home / "cache") + du(home / "pastes"),
        DiskKind.CRON: du(home / "cron"),
        DiskKind.TRASH: du(home / ".hermes-exporter"),
        DiskKind.REQUEST_DUMPS: sum(map(du, home.glob("sessions/request_dump_*"))),
        DiskKind.TRANSCRIPTS: own_bytes(home / "sessions")
        + sum(map(du, [*home.glob("sessions/session_*"), *home.glob("sessions/*.jsonl")])),
        DiskKind.CHECKPOINTS_LEGACY: du(checkpoints / A),
        DiskKind.CHECKPOINTS_ARCHIVE: du(checkpoints / "legacy-20260101-000000"),
        DiskKind.CHECKPOINTS_STORE: own_bytes(checkpoints)
        + du(checkpoints / "store")
        + du(checkpoints / ".last_prune"),
    }
    assert {kind: usage[kind].allocated_bytes for kind in expected} == expected
    assert usage.keys() == set(DiskKind)
    assert usage[DiskKind.CHECKPOINTS_LEGACY].files == files_in(checkpoints / A)
    assert usage[DiskKind.TRANSCRIPTS].files == 2


def test_an_empty_home_has_its_own_folder_only(tmp_path: Path) -> None:
    report = Watched(tmp_path).assert_as_du()
    assert report.complete
    assert all(count.projects == 0 for count in report.checkpoints)
    assert len(report.checkpoints) == 6


def test_profiles_that_are_homes_of_their_own_are_left_out(home: Path) -> None:
    watched = Watched(home)
    everything = total_bytes(watched.assert_as_du())
    watched.excluded = frozenset({"work"})
    without = total_bytes(watched.assert_as_du())
    assert everything - without == du(home / "profiles/work")
    watched.excluded = frozenset({"play"})
    watched.assert_as_du()


def test_hard_links_are_counted_once_in_the_whole_home(home: Path) -> None:
    target = home / "cache/images/x.png"
    for place in ("logs/same.log", "skills/a/same", f"checkpoints/{A}/same", "same"):
        os.link(target, home / place)
    Watched(home).assert_as_du()
    watched = Watched(home)
    watched.scan()
    os.link(home / "state.db", home / "sessions/session_y.json")
    watched.assert_as_du()
    target.unlink()
    watched.assert_as_du()


def test_links_are_counted_and_never_followed(home: Path) -> None:
    (home / "skills/loop").symlink_to(home)
    (home / "skills/self").symlink_to("self")
    (home / "cache/away").symlink_to("/usr")
    (home / "sessions/session_z.json").symlink_to("/etc/passwd")
    (home / "cache/long").symlink_to("x" * 200)
    assert Watched(home).assert_as_du().complete


def test_names_may_be_any_bytes(home: Path) -> None:
    for folder in (b"sessions/", b"cache/", b"checkpoints/", b"checkpoints/%s/" % A.encode()):
        place = os.fsencode(home) + b"/" + folder
        os.mkdir(place + b"\xff\xfe\nfolder")
        for name in (b"session_\n.json", b"\xff\xfe.json", b"\xff\xfe\nfolder/\x01\x80", b"\\ *?["):
            with open(place + name, "wb") as file:
                file.write(b"x" * 5000)
    assert Watched(home).assert_as_du().complete


def test_special_files_are_counted_and_not_opened(home: Path) -> None:
    os.mkfifo(home / "sessions/session_fifo.json")
    os.mkfifo(home / f"checkpoints/{A}/fifo")
    (home / f"checkpoints/{A}/HERMES_WORKDIR").unlink()
    os.mkfifo(home / f"checkpoints/{A}/HERMES_WORKDIR")
    Watched(home).assert_as_du()


@pytest.mark.parametrize("name", ["sessions", "checkpoints", "logs", "checkpoints/store"])
def test_a_folder_that_is_a_file_or_a_link_is_counted_as_it_is(home: Path, name: str) -> None:
    watched = Watched(home)
    watched.scan()
    (home / name).rename(home.parent / "elsewhere")
    watched.assert_as_du()
    (home / name).symlink_to(home.parent / "elsewhere")
    report = watched.assert_as_du()
    assert report.complete
    if "checkpoints" in name:
        assert sum(c.projects for c in report.checkpoints if c.layout == "store") == 0
    (home / name).unlink()
    (home / name).write_bytes(b"x" * 9000)
    watched.assert_as_du()
    (home / name).unlink()
    (home.parent / "elsewhere").rename(home / name)
    watched.assert_as_du()


def test_state_db_may_be_a_folder(home: Path) -> None:
    (home / "state.db").unlink()
    (home / "state.db").mkdir()
    (home / "state.db/x").write_bytes(b"x" * 5000)
    assert Watched(home).assert_as_du().usage[DiskKind.STATE_DB].files == 0


def test_the_database_is_never_opened(home: Path) -> None:
    """Closing a descriptor of it would drop the locks that SQLite holds in the same process."""
    script = """
import os, sys, time
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
from exporter.scan.disk.scanner import DiskScanner
scanner = DiskScanner(sys.argv[1])
for monotonic in (0.0, 15.0, 1e6):
    scanner.scan(excluded_profiles=frozenset(), now=time.time(), monotonic=monotonic)
names = [os.fsencode(path) for path in opened if not isinstance(path, int)]
assert any(b"HERMES_WORKDIR" in name for name in names)
assert not [name for name in names if b"state.db" in name], names
"""
    subprocess.run([sys.executable, "-c", script, str(home)], check=True)


# How it changes


@pytest.mark.parametrize("seed", range(6))
def test_a_small_home_is_exact_after_every_change(home: Path, seed: int) -> None:
    random = Random(seed)
    watched = Watched(home)
    for _ in range(25):
        change_something(home, random)
        watched.assert_as_du()


def test_checkpoints_are_exact_after_every_snapshot(home: Path, tmp_path: Path) -> None:
    watched = Watched(home)
    store = home / "checkpoints/store"
    for number in range(4):
        (tmp_path / "work/a/file.txt").write_text(f"{number}" * 6000)
        commit_in_repo(home / "checkpoints" / A, tmp_path / "work/a")
        watched.assert_as_du()
        add_ref(store, f"{number:016x}")
        watched.assert_as_du()
    shutil.move(home / "checkpoints" / A, home / "checkpoints/legacy-20260101-000000" / A)
    report = watched.assert_as_du()
    assert report.usage[DiskKind.CHECKPOINTS_LEGACY].allocated_bytes == 0


def test_new_and_removed_files_of_a_large_home_show_at_once(home: Path) -> None:
    fill(home / "sessions", 2500)
    watched = Watched(home)
    watched.assert_as_du()
    for _ in range(3):
        settle(home / "sessions")
        watched.scan()
        (home / "sessions/session_new.json").write_bytes(b"x" * 10_000)
        (home / "sessions/session_00007.json").unlink(missing_ok=True)
        (home / "cache/images/new.png").write_bytes(b"x" * 10_000)
        watched.assert_as_du()
        (home / "sessions/session_new.json").unlink()
        (home / "cache/images/new.png").unlink()


def test_what_grows_in_place_in_a_large_home_shows_soon(home: Path) -> None:
    """The database and the newest files at once; an old transcript after a few minutes."""
    fill(home / "sessions", 2500)
    for number in range(100):
        os.utime(home / f"sessions/session_{number:05d}.json", (1, 1))
    settle(home / "sessions")
    watched = Watched(home)
    watched.scan()
    watched.scan()
    grow(home / "state.db-wal")
    grow(home / "logs/agent.log")
    watched.assert_as_du()
    grow(home / "sessions/session_00042.json")
    assert any(watched.is_as_du() for _ in range(12))
    grow(home / "sessions/session_00042.json")
    watched.assert_as_du()


def test_transcripts_that_grow_are_counted_without_a_look_at_all_others(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home / "sessions", 2500)
    growing = [home / f"sessions/session_{number:05d}.json" for number in range(0, 2000, 100)]
    dump = next(home.glob("sessions/request_dump_*"))
    for path in set((home / "sessions").iterdir()) - {*growing, dump}:
        os.utime(path, (1, 1))
    settle(home / "sessions", home)
    watched = Watched(home)
    for _ in range(5):  # so that the next scans do not also check a share
        before = watched.scan()
    looks = 0
    lstat = os.lstat

    def counting(path: bytes) -> os.stat_result:
        nonlocal looks
        looks += 1
        return lstat(path)

    sizes = [sum(map(du, paths)) for paths in (growing, [dump])]
    for path in (*growing, dump):
        grow(path)
    monkeypatch.setattr(os, "lstat", counting)
    report = watched.assert_as_du()
    assert looks < 500
    for kind, paths, size in zip(
        (DiskKind.TRANSCRIPTS, DiskKind.REQUEST_DUMPS), (growing, [dump]), sizes, strict=True
    ):
        grown = report.usage[kind].allocated_bytes - before.usage[kind].allocated_bytes
        assert grown == sum(map(du, paths)) - size > 0
    growing[3].unlink()
    watched.assert_as_du()


def test_every_part_of_a_large_tree_is_read_again_in_turn(home: Path) -> None:
    for number in range(60):
        (home / f"skills/pack{number}/deep/er").mkdir(parents=True)
        fill(home / f"skills/pack{number}/deep/er", 45)
    settle(home / "skills/pack59/deep/er")
    watched = Watched(home)
    watched.assert_as_du()
    for number in range(0, 60, 7):
        os.utime(home / f"skills/pack{number}/deep/er/session_00003.json", (1, 1))
        grow(home / f"skills/pack{number}/deep/er/session_00003.json")
        (home / f"skills/pack{number}/deep/new").write_bytes(b"x" * 9000)
    for _ in range(60):
        report = watched.scan()
    assert total_bytes(report) == du(home)


def test_a_tree_may_grow_and_shrink_across_all_sizes(home: Path) -> None:
    watched = Watched(home)
    place = home / "cache/tree"
    for folders, files in ((2, 3), (30, 9), (1500, 1), (1, 1), (40, 80), (0, 0)):
        shutil.rmtree(place, ignore_errors=True)
        for folder in range(folders):
            (place / f"f{folder}/deep").mkdir(parents=True)
            fill(place / f"f{folder}/deep", files)
        watched.assert_as_du()


def test_shadow_repositories_in_numbers(home: Path, tmp_path: Path) -> None:
    """Snapshots show at once, silent changes after `round_scans`, everything in a full interval."""
    repos = [make_shadow_repo(home / "checkpoints", f"{n:016x}", tmp_path / "w") for n in range(24)]
    watched = Watched(home)
    watched.assert_as_du()
    settle(*repos, *(repos[-1] / "objects").iterdir())
    for _ in range(2):
        watched.scan()
    (tmp_path / "w/file.txt").write_text("changed" * 2000)
    commit_in_repo(repos[3], tmp_path / "w")
    watched.assert_as_du()
    grow(repos[4] / "logs/HEAD")
    (repos[5] / "objects/zz").mkdir()
    (repos[5] / "objects/zz/unreferenced").write_bytes(b"x" * 9000)
    for _ in range(60):
        watched.scan()
    watched.assert_as_du()
    grow(next(path for path in repos[6].glob("objects/??/*")))
    watched.scan(6 * 3600.0)
    watched.assert_as_du()


def test_a_repository_that_comes_goes_or_becomes_another(home: Path, tmp_path: Path) -> None:
    watched = Watched(home)
    watched.scan()
    repo = make_shadow_repo(home / "checkpoints", B, tmp_path / "work/b")
    watched.assert_as_du()
    shutil.rmtree(repo)
    watched.assert_as_du()
    repo.symlink_to(home / "checkpoints" / A)
    watched.assert_as_du()
    repo.unlink()
    repo.write_text("a file")
    watched.assert_as_du()


# What goes wrong


def test_files_that_vanish_during_a_scan_do_no_harm(home: Path) -> None:
    script = """
import os, shutil, sys
while True:
    for place in ("sessions", "cache/churn", "checkpoints/dddddddddddddddd/objects/aa"):
        folder = os.path.join(sys.argv[1], place)
        os.makedirs(folder, exist_ok=True)
        for number in range(30):
            open(os.path.join(folder, f"session_{number}.json"), "w").close()
        for number in range(30):
            os.unlink(os.path.join(folder, f"session_{number}.json"))
    shutil.rmtree(os.path.join(sys.argv[1], "cache/churn"))
    shutil.rmtree(os.path.join(sys.argv[1], "checkpoints/dddddddddddddddd"))
    print(flush=True)
"""
    watched = Watched(home)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(home)], stdout=subprocess.PIPE
    ) as churning:
        assert churning.stdout is not None
        churning.stdout.readline()
        for _ in range(60):
            assert watched.scan().unreadable == 0
        churning.kill()
    watched.assert_as_du()


def test_what_cannot_be_read_is_counted_and_said() -> None:
    """Like an owner who removed the permissions on parts of a home."""
    script = """
import os, sys, tempfile, time
from exporter.scan.disk.scanner import DiskScanner
with tempfile.TemporaryDirectory() as home:
    for folder in ("cache/locked/inner", "checkpoints/aaaaaaaaaaaaaaaa/objects", "logs"):
        os.makedirs(os.path.join(home, folder))
    locked = [os.path.join(home, f) for f in ("cache/locked", "checkpoints/aaaaaaaaaaaaaaaa")]
    scanner = DiskScanner(home)
    def scan():
        report = scanner.scan(excluded_profiles=frozenset(), now=time.time(), monotonic=0.0)
        size = sum(usage.allocated_bytes for usage in report.usage.values())
        said = os.popen(f"du -s --block-size=1 {home} 2> {os.devnull}").read()
        assert size == int(said.split()[0]), (size, said)
        return report.unreadable, report.complete
    if os.geteuid() == 0:
        os.chown(home, 65534, 65534)
        for folder, folders, files in os.walk(home):
            for name in folders:
                os.chown(os.path.join(folder, name), 65534, 65534)
        os.setgroups([]), os.setgid(65534), os.setuid(65534)
    assert scan() == (0, True)
    for folder in locked:
        os.chmod(folder, 0)
    assert scan() == (2, False), scan()
    for folder in locked:
        os.chmod(folder, 0o700)
    assert scan() == (0, True)
    os.chmod(os.path.join(home, "cache"), 0o600)
    assert scan()[1] is False
    os.chmod(os.path.join(home, "cache"), 0o700)
    assert scan() == (0, True)
    os.chmod(home, 0)
    report = scanner.scan(excluded_profiles=frozenset(), now=time.time(), monotonic=0.0)
    assert (report.unreadable, report.complete) == (1, False)
    os.chmod(home, 0o700)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_home_that_is_gone_keeps_its_last_figures(home: Path) -> None:
    watched = Watched(home)
    before = watched.scan()
    home.rename(home.parent / "moved")
    gone = watched.scan()
    assert (gone.complete, gone.unreadable, gone.usage) == (False, 1, before.usage)
    home.mkdir()
    assert watched.assert_as_du().complete


def test_a_walk_that_takes_too_long_goes_on_at_the_next_scan(home: Path, tmp_path: Path) -> None:
    for number in range(20):
        make_shadow_repo(home / "checkpoints", f"{number:016x}", tmp_path / "work/a")
    ticks = count()
    scanner = DiskScanner(str(home), processes=1, walk_seconds=10, clock=lambda: float(next(ticks)))
    watched = Watched(home, scanner)
    found = [watched.scan()]
    while not found[-1].complete:
        found.append(watched.scan())
    assert len(found) > 3
    sizes = [total_bytes(report) for report in found]
    assert sizes == sorted(sizes)
    assert sizes[-1] == du(home)


def test_a_walk_also_stops_within_one_huge_repository_and_goes_on_there(tmp_path: Path) -> None:
    home = tmp_path / "bare"
    for number in range(700):
        (home / f"checkpoints/{7:016x}/objects/{number:04x}/below").mkdir(parents=True)
    ticks = count()
    scanner = DiskScanner(str(home), processes=1, walk_seconds=5, clock=lambda: float(next(ticks)))
    watched = Watched(home, scanner)
    found = [watched.scan()]
    while not found[-1].complete:
        found.append(watched.scan())
    assert len(found) > 2
    assert total_bytes(found[-1]) == du(home)


def test_a_repository_that_git_must_not_be_asked_about_is_reported(home: Path) -> None:
    with (home / "checkpoints/store/config").open("a") as config:
        config.write("[include]\n\tpath = /tmp/evil\n")
    watched = Watched(home)
    report = watched.assert_as_du()
    assert (report.complete, report.unreadable) == (False, 1)
    store = home / "checkpoints/store"
    reader = StoreReader(os.fsencode(store), str(store))
    reader.read(0.0)
    assert "include.path" in str(reader.problem)


# What it costs


def test_the_working_directory_is_given_back(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home.parent)
    Watched(home).scan()
    assert Path.cwd() == home.parent


def test_an_idle_scan_lists_few_of_many_folders(home: Path, tmp_path: Path) -> None:
    """A scan of an unchanged home checks each repository, but does not read it."""
    repo = make_shadow_repo(home / "checkpoints", "0" * 16, tmp_path / "work/a")
    for number in range(1, 300):
        shutil.copytree(repo, home / "checkpoints" / f"{number:016x}")
    settle(home / "checkpoints", home / "checkpoints" / f"{299:016x}")
    script = """
import sys, time
from exporter.scan.disk.scanner import DiskScanner
scanner = DiskScanner(sys.argv[1], processes=1)
listed = []
sys.addaudithook(lambda event, args: listed.append(1) if event in DIRECTORY_EVENTS else None)
DIRECTORY_EVENTS = ("os.listdir", "os.scandir")
def scan(number):
    listed.clear()
    scanner.scan(excluded_profiles=frozenset(), now=time.time(), monotonic=15.0 * number)
    return len(listed)
first = scan(0)
idle = [scan(number) for number in range(1, 20)]
print(first, max(idle))
"""
    said = subprocess.run(
        [sys.executable, "-c", script, str(home)], check=True, capture_output=True, text=True
    )
    first, idle = map(int, said.stdout.split())
    assert first > 3000
    assert idle < first / 20


def test_a_folder_with_very_many_files_takes_little_memory(home: Path) -> None:
    fill(home / "sessions", 30_000)
    watched = Watched(home)
    tracemalloc.start()
    try:
        watched.scan()
        watched.scan()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_500_000
    watched.scan(3600.0)
    watched.assert_as_du()


# Checkpoint projects


def test_projects_are_counted_by_layout_and_state(home: Path, tmp_path: Path) -> None:
    work, store = tmp_path / "work", home / "checkpoints/store"
    for name, workdir in (("1" * 16, work / "gone"), ("2" * 16, work / "off/gone")):
        make_shadow_repo(home / "checkpoints", name, workdir)
        shutil.rmtree(workdir.parent if workdir.parent != work else workdir)
        add_project(store, name, workdir, time.time())
    old = make_shadow_repo(home / "checkpoints", "3" * 16, work / "old")
    age_everything(old, 20 * DAY)
    add_project(store, "3" * 16, work / "old", time.time() - 20 * DAY)
    (home / "checkpoints" / ("4" * 16)).mkdir()
    watched = Watched(home)
    found = counts(watched.assert_as_du())
    assert found == {
        ("legacy", "active"): 2,
        ("legacy", "orphan"): 1,
        ("legacy", "stale"): 1,
        ("store", "active"): 2,
        ("store", "orphan"): 1,
        ("store", "stale"): 1,
    }
    (work / "gone").mkdir()
    assert counts(watched.scan())["legacy", "orphan"] == 0


def test_projects_can_be_asked_for_between_scans(home: Path) -> None:
    watched = Watched(home)
    scanner = watched.scanner
    assert (scanner.repositories(), scanner.stored_projects()) == ([], [])
    found = counts(watched.scan())
    (legacy,) = (n for n in scanner.repositories() if n.kind is DiskKind.CHECKPOINTS_LEGACY)
    assert (legacy.path, found[CheckpointLayout.LEGACY, ProjectState.ACTIVE]) == (
        f"checkpoints/{A}".encode(),
        1,
    )
    blocks = sum(tally.blocks for tally in legacy.tallies.values())
    assert blocks * 512 == du(home / "checkpoints" / A)
    (stored,) = scanner.stored_projects()
    assert (stored.name, found[CheckpointLayout.STORE, ProjectState.ORPHAN]) == (C, 0)
    assert abs(stored.last_touch - time.time()) < 600


# What an earlier process has kept


def many_repos(home: Path) -> list[Path]:
    """Make more repositories than a scan reads at each time; return their folders."""
    repos = [home / f"checkpoints/{number:016x}" for number in range(40)]
    for repo in repos:
        (repo / "objects/aa").mkdir(parents=True)
        fill(repo / "objects/aa", 30)
        (repo / "HEAD").write_text("ref: refs/heads/main\n")
    settle(*repos, *(repo / "objects/aa" for repo in repos))
    return repos


def later(watched: Watched, seconds: float = 0.0) -> Watched:
    """Return a new process's scanner that starts with what this one knew so long ago."""
    kept = watched.scanner.kept()
    assert kept is not None
    scanner = DiskScanner(str(watched.home), processes=1)
    scanner.use(structs.replace(kept, taken_at=kept.taken_at - seconds))
    return Watched(watched.home, scanner)


def test_a_later_process_starts_with_kept_readings_and_sees_what_changed(home: Path) -> None:
    repos = many_repos(home)
    first = Watched(home)
    first.assert_as_du()
    before = du(home)
    grow(repos[7] / "objects/aa/session_00001.json")  # shows in no folder that is looked at
    second = later(first)
    assert total_bytes(second.scan()) == before
    (repos[7] / "index").write_bytes(b"x" * 5000)  # as git does at every snapshot
    (repos[8] / "index").write_bytes(b"x" * 5000)
    shutil.rmtree(repos[9])
    shutil.copytree(repos[10], home / f"checkpoints/{99:016x}")
    later(first).assert_as_du()


def test_kept_readings_are_made_again_in_turn(home: Path) -> None:
    repos = many_repos(home)
    watched = Watched(home)
    watched.assert_as_du()
    for repo in repos:
        grow(repo / "objects/aa/session_00001.json")
    commands = 0
    while not watched.is_as_du():
        watched = later(watched, seconds=86400)
        commands += 1
    assert 15 < commands <= 25


def test_kept_readings_of_another_home_are_not_used(home: Path, tmp_path: Path) -> None:
    many_repos(home)
    first = Watched(home)
    first.assert_as_du()
    shutil.copytree(home, tmp_path / "copy", symlinks=True)
    shutil.rmtree(home)
    (tmp_path / "copy").rename(home)
    later(first).assert_as_du()


def counts(report: DiskReport) -> dict[tuple[str, str], int]:
    return {(count.layout, count.state): count.projects for count in report.checkpoints}


def age_everything(place: Path, seconds: float) -> None:
    when = time.time() - seconds
    for folder, folders, files in os.walk(place, topdown=False):
        for name in [*folders, *files, "."]:
            os.utime(Path(folder, name), (when, when))


def own_bytes(folder: Path) -> int:
    return os.lstat(folder).st_blocks * 512


def fill(folder: Path, files: int) -> None:
    for number in range(files):
        (folder / f"session_{number:05d}.json").write_bytes(b"x")


def grow(path: Path) -> None:
    path.chmod(0o600)
    with path.open("ab") as file:
        file.write(b"x" * 20_000)


def change_something(home: Path, random: Random) -> None:
    """Make one change as Hermes, a user or a pruner does, anywhere in the home."""
    folders = [Path(folder) for folder, _, _ in os.walk(home)]
    files = [p for p in home.rglob("*") if p.is_file() and not p.is_symlink()]
    folder, file = random.choice(folders), random.choice(files)
    new = folder / f"session_{random.randrange(10**6)}.json"
    change = random.randrange(8)
    if change == 0:
        new.write_bytes(b"x" * random.randrange(30_000))
    elif change == 1:
        grow(file)
    elif change == 2:
        file.unlink()
    elif change == 3:
        file.rename(new)
    elif change == 4:
        os.link(file, new)
    elif change == 5:
        (new / "a/b").mkdir(parents=True)
        (new / "a/b/c").write_bytes(b"x" * 5000)
    elif change == 6:
        new.symlink_to(file)
    elif folder not in (home, home / "checkpoints"):
        shutil.rmtree(folder)
