"""Whatever happens to a home, scrapes are answered, other homes go on, and the log says it once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.real.agent import Agent, Metrics, agent
from tests.real.command import run
from tests.real.counts import allocated_bytes, files_below
from tests.real.hanging import Opcode, hanging_filesystem
from tests.real.waiting import wait_until
from tests.support.running_agent import (
    SCANNED,
    always_answering,
    children,
    complaints,
    configuration,
    recoveries,
    scanned_again,
    when,
    when_down,
    when_up,
)
from tests.support.small_homes import small_home, write_sessions

# Workers that die


def test_a_worker_killed_between_scans_is_replaced_without_a_word(tmp_path: Path) -> None:
    homes = {"good": small_home(tmp_path / "good")}
    with agent(tmp_path, configuration=configuration(homes)) as running, always_answering(running):
        for _ in range(3):
            (worker,) = children(running)
            worker.kill()
            metrics = scanned_again(running, "good", 2)
            assert metrics.value("hermes_sessions_open", home="good", source="cli") == 3
        assert complaints(running, "good") == []


def test_a_worker_killed_in_the_middle_of_a_scan_is_replaced_without_a_word(
    tmp_path: Path,
) -> None:
    source, mount = small_home(tmp_path / "source"), tmp_path / "mount"
    mount.mkdir()
    with (
        hanging_filesystem(source, mount) as filesystem,
        agent(tmp_path, configuration=configuration({"slow": mount})) as running,
        always_answering(running),
    ):
        filesystem.hang(Opcode.READ)
        assert filesystem.asked_while_hanging.wait(60)
        (worker,) = children(running)
        worker.kill()
        filesystem.recover()
        metrics = scanned_again(running, "slow", 2)
        assert metrics.value("hermes_sessions_open", home="slow", source="cli") == 3
        assert complaints(running, "slow") == []
        assert worker.pid not in {child.pid for child in children(running)}


def test_the_scout_killed_is_replaced(tmp_path: Path) -> None:
    homes = {"good": small_home(tmp_path / "good")}
    with agent(tmp_path, configuration=configuration(homes)) as running, always_answering(running):
        (prober,) = children(running, "exporter.workers.path_probe")
        prober.kill()
        scanned_again(running, "good", 3)
        assert complaints(running, "good") == []


# Filesystems that hang


@contextmanager
def opened(file: Path) -> Iterator[None]:
    """A process that has the file open all the while."""
    program = "import sys; file = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("below", ["", "disk/home"], ids=["mounted at the home", "mounted above"])
def test_a_hung_filesystem_takes_no_neighbour_down(tmp_path: Path, below: str) -> None:
    """Not those of the same owner either; no processes pile up; it comes back by itself."""
    source, mount = tmp_path / "source", tmp_path / "mount"
    small_home(source / below)
    mount.mkdir()
    homes = {"good": small_home(tmp_path / "good"), "hung": mount / below}
    with (
        hanging_filesystem(source, mount) as filesystem,
        agent(tmp_path, configuration=configuration(homes)) as running,
        always_answering(running),
        opened(mount / below / "state.db"),
    ):
        when_up(running, "good", "hung")
        filesystem.hang()
        when_down(running, "hung")
        (complaint,) = complaints(running, "hung")
        assert "reason=timeout" in complaint
        processes = len(children(running)) + len(children(running, "exporter.workers.path_probe"))
        metrics = scanned_again(running, "good", 6)
        assert metrics.value("hermes_home_up", home="good") == 1
        assert metrics.value("hermes_home_up", home="hung") == 0
        assert (
            len(children(running)) + len(children(running, "exporter.workers.path_probe"))
            <= processes
        )
        filesystem.recover()
        when_up(running, "hung", "good")
        assert complaints(running, "hung") == [complaint]
        assert len(recoveries(running, "hung")) == 1
        assert complaints(running, "good") == []


def test_a_worker_that_hangs_is_not_joined_by_others(tmp_path: Path) -> None:
    """Where a path still answers but its files do not, one process waits for them, not many."""
    source, mount = small_home(tmp_path / "source"), tmp_path / "mount"
    mount.mkdir()
    homes = {"good": small_home(tmp_path / "good"), "hung": mount}
    with (
        hanging_filesystem(source, mount) as filesystem,
        agent(tmp_path, configuration=configuration(homes)) as running,
        always_answering(running),
    ):
        when_up(running, "good", "hung")
        filesystem.hang(Opcode.READ)
        assert filesystem.asked_while_hanging.wait(60)
        scanned_again(running, "good", 2)
        when_down(running, "hung")
        scanned_again(running, "good", 4)
        assert len(children(running)) == 2
        (complaint,) = complaints(running, "hung")
        assert "reason=timeout" in complaint
        filesystem.recover()
        when_up(running, "hung")
        assert complaints(running, "good") == []


def test_the_agent_stops_though_a_filesystem_hangs(tmp_path: Path) -> None:
    source, mount = small_home(tmp_path / "source"), tmp_path / "mount"
    mount.mkdir()
    with (
        hanging_filesystem(source, mount) as filesystem,
        agent(tmp_path, configuration=configuration({"hung": mount})) as running,
    ):
        filesystem.hang(Opcode.READ)
        assert filesystem.asked_while_hanging.wait(60)
        assert running.stop() == 0
        assert complaints(running, "hung") == []


def test_a_command_does_not_hang_with_a_filesystem(tmp_path: Path) -> None:
    source, mount = small_home(tmp_path / "source"), tmp_path / "mount"
    mount.mkdir()
    good = small_home(tmp_path / "good")
    file = tmp_path / "homes.yml"
    file.write_text(configuration({"good": good, "hung": mount}))
    with hanging_filesystem(source, mount) as filesystem:
        filesystem.hang()
        done = run("status", "--json", "--config.file", file, "--state-dir", tmp_path / "state")
    assert done.returncode == 3, done.stderr
    status = json.loads(done.stdout)
    assert [(home["home"], home["up"], home["trouble"]) for home in status["homes"]] == [
        ("good", True, "none"),
        ("hung", False, "timeout"),
    ]


# Homes that are broken


def truncate(home: Path) -> None:
    os.truncate(home / "state.db", 5000)


def make_directory(home: Path) -> None:
    (home / "state.db").unlink()
    (home / "state.db" / "inside").mkdir(parents=True)


def write_garbage(home: Path) -> None:
    (home / "state.db").write_bytes(os.urandom(100_000))


def make_fifo(home: Path) -> None:
    (home / "state.db").unlink()
    os.mkfifo(home / "state.db")


def link_to_itself(home: Path) -> None:
    (home / "state.db").unlink()
    (home / "state.db").symlink_to("state.db")


def make_empty_of_tables(home: Path) -> None:
    (home / "state.db").unlink()
    subprocess.run(["sqlite3", home / "state.db", "CREATE TABLE notes (text)"], check=True)


def remove_home(home: Path) -> None:
    shutil.rmtree(home)


def replace_home_by_file(home: Path) -> None:
    shutil.rmtree(home)
    home.write_text("not a home")


def give_part_away(home: Path) -> None:
    os.chown(home / "state.db", 54321, 54321)


BROKEN = {
    "truncated": (truncate, "corrupt"),
    "directory": (make_directory, "not_a_file"),
    "garbage": (write_garbage, "not_a_database"),
    "fifo": (make_fifo, "not_a_file"),
    "loop": (link_to_itself, "home_gone"),
    "tableless": (make_empty_of_tables, "no_sessions_table"),
    "removed": (remove_home, "home_gone"),
    "file": (replace_home_by_file, "home_gone"),
    "foreign": (give_part_away, "home_gone"),
}


def when_all_is_told(running: Agent, *homes: str) -> None:
    """After the look at the thresholds, which comes last, the next scan is an hour away."""

    def looked_at(metrics: Metrics) -> bool:
        seen = {home for home, _ in metrics.by("hermes_prune_pressure", "home", "threshold")}
        return seen == set(homes)

    when(running, looked_at, "all is told of every home")


def scan_now(running: Agent) -> Metrics:
    """Let an agent scan that would not for an hour; when it has, it touches no home any more."""
    last = running.metrics().value(SCANNED, home="good")
    running.process.send_signal(signal.SIGHUP)
    return when(running, lambda found: found.value(SCANNED, home="good") > last, "it has scanned")


def test_broken_homes_say_so_once_and_recover(tmp_path: Path) -> None:
    """Every way to break a home, all at once, beside one that is well."""
    homes = {name: small_home(tmp_path / "homes" / name) for name in ("good", *BROKEN)}
    settings = configuration(homes).replace("interval: 1s", "interval: 1h")
    with agent(tmp_path, configuration=settings) as running, always_answering(running):
        when_all_is_told(running, *homes)
        shutil.copytree(tmp_path / "homes", tmp_path / "copies")
        for name, (damage, _) in BROKEN.items():
            damage(homes[name])
        scan_now(running)
        when_down(running, *BROKEN)
        for _ in range(4):
            metrics = scan_now(running)
        assert metrics.value("hermes_home_up", home="good") == 1
        for name, (_, reason) in BROKEN.items():
            (complaint,) = complaints(running, name)
            assert f"reason={reason}" in complaint
        for name in BROKEN:
            subprocess.run(["rm", "-rf", homes[name]], check=True)
            shutil.copytree(tmp_path / "copies" / name, homes[name])
        scan_now(running)
        when_up(running, *homes)
        for name in BROKEN:
            assert len(complaints(running, name)) == len(recoveries(running, name)) == 1
        assert complaints(running, "good") == []


def test_a_database_lost_while_no_agent_ran_is_missed_until_there_is_one_again(
    tmp_path: Path,
) -> None:
    """The state directory remembers that there were messages; a new database has its own."""
    names = ("emptied", "gone", "begun anew")
    homes = {name: small_home(tmp_path / name.replace(" ", "-")) for name in names}
    settings = configuration(homes)
    with agent(tmp_path, configuration=settings) as running:
        for name in names:
            scanned_again(running, name, 2)
    os.truncate(homes["emptied"] / "state.db", 0)
    (homes["gone"] / "state.db").unlink()
    (homes["begun anew"] / "state.db").unlink()
    write_sessions(homes["begun anew"] / "state.db", 1)
    for _ in range(2):
        with agent(tmp_path, configuration=settings) as running:
            when_up(running, "begun anew")
            when_down(running, "emptied", "gone")
            for name, what in (("emptied", "is empty"), ("gone", "is gone")):
                (complaint,) = wait_until(partial(complaints, running, name), "it is told")
                assert "reason=not_a_database" in complaint
                assert f"{what}; it held sessions" in complaint
    (homes["emptied"] / "state.db").unlink()
    with agent(tmp_path, configuration=settings) as running:
        when_down(running, "emptied", "gone")
        write_sessions(homes["emptied"] / "state.db", 1)
        write_sessions(homes["gone"] / "state.db", 0)
        when_up(running, *names)


def test_odd_names_and_loops_are_counted_like_any_other(tmp_path: Path) -> None:
    home = small_home(tmp_path / "odd")
    odd = os.fsencode(home) + b"/sessions"
    for name in (
        b"new\nline.json",
        b"not \xff\xfe utf-8.jsonl",
        b"\x1b[31mred",
        b"a\\b\"c'd",
        b"-",
    ):
        Path(os.fsdecode(odd + b"/" + name)).write_bytes(b"x" * 5000)
    Path(os.fsdecode(odd + b"/fol\xffder")).mkdir()
    (home / "sessions" / "loop").symlink_to("..")
    (home / "logs").symlink_to("logs")
    (home / "cache").mkdir()
    (home / "cache" / "up").symlink_to("../../..")
    deep = home / "cache"
    for _ in range(200):
        deep = deep / "deeper"
        deep.mkdir()
    with (
        agent(tmp_path, configuration=configuration({"odd": home})) as running,
        always_answering(running),
    ):
        metrics = scanned_again(running, "odd")
        assert metrics.value("hermes_home_up", home="odd") == 1
        assert sum(metrics.by("hermes_disk_files", "kind").values()) == files_below(home)
        assert sum(metrics.by("hermes_disk_bytes", "kind").values()) == allocated_bytes(home)


def sparse_wal(home: Path) -> None:
    """Two gigabytes that say nothing: SQLite must not be made to read them."""
    with (home / "state.db-wal").open("wb") as wal:
        wal.truncate(2 << 30)


def unchecked_wal(home: Path) -> None:
    """A log with a valid header, then two gigabytes of holes."""
    subprocess.run(
        [sys.executable, "-c", _CRASHING_WRITER, home / "state.db"], check=False, timeout=60
    )
    (home / "state.db-shm").unlink()
    os.truncate(home / "state.db-wal", 2 << 30)


_CRASHING_WRITER = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA journal_mode=WAL")
connection.execute("UPDATE sessions SET model = 'x'")
connection.commit()
os._exit(0)
"""


@pytest.mark.parametrize("swell", [sparse_wal, unchecked_wal])
def test_a_huge_log_full_of_nothing_is_no_burden(
    tmp_path: Path, swell: Callable[[Path], None]
) -> None:
    home = small_home(tmp_path / "swollen")
    swell(home)
    homes = {"good": small_home(tmp_path / "good"), "swollen": home}
    with (
        agent(tmp_path, configuration=configuration(homes)) as running,
        always_answering(running),
    ):
        scanned_again(running, "swollen")
        metrics = scanned_again(running, "good")
        assert metrics.value("hermes_sessions_open", home="swollen", source="cli") == 3
    assert (home / "state.db-wal").stat().st_size == 2 << 30


def crowded_home(path: Path, files: int) -> Path:
    home = small_home(path)
    for number in range(files):
        (home / "sessions" / f"20250101_{number:06}_cccccc.jsonl").touch()
    return home


@pytest.mark.parametrize(
    "files", [30_000, pytest.param(300_000, marks=[pytest.mark.full, pytest.mark.timeout(1200)])]
)
def test_a_sessions_folder_with_very_many_files(tmp_path: Path, files: int) -> None:
    homes = {
        "good": small_home(tmp_path / "good"),
        "crowded": crowded_home(tmp_path / "crowded", files),
    }
    with (
        agent(tmp_path, configuration=configuration(homes)) as running,
        always_answering(running),
    ):
        metrics = when_up(running, "crowded")
        assert metrics.value("hermes_disk_files", home="crowded", kind="transcripts") == files
        scanned_again(running, "good")


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_log_of_two_gigabytes(tmp_path: Path) -> None:
    """Left by a writer that was killed, with its index and without."""
    homes = {name: small_home(tmp_path / name) for name in ("good", "indexed", "bare")}
    for name in ("indexed", "bare"):
        subprocess.run([sys.executable, "-c", _PROLIFIC_WRITER, homes[name] / "state.db"])
        assert (homes[name] / "state.db-wal").stat().st_size > 2 << 30
    (homes["bare"] / "state.db-shm").unlink()
    with (
        agent(tmp_path, configuration=configuration(homes)) as running,
        always_answering(running),
    ):
        when_up(running, *homes)
        metrics = scanned_again(running, "good")
        for name in ("indexed", "bare"):
            assert metrics.value("hermes_sessions_open", home=name, source="cli") == 3
            assert metrics.value("hermes_disk_bytes", home=name, kind="state_wal") > 2 << 30
    shutil.rmtree(tmp_path)


_PROLIFIC_WRITER = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA journal_mode=WAL")
connection.execute("PRAGMA wal_autocheckpoint=0")
connection.execute("CREATE TABLE ballast (content BLOB)")
for _ in range(2100):
    connection.execute("INSERT INTO ballast VALUES (zeroblob(1 << 20))")
    connection.commit()
os._exit(0)
"""


# The agent's own surroundings


def test_a_full_state_directory_costs_no_metrics(tmp_path: Path) -> None:
    """The disk that fills up is what the metrics are there to tell of."""
    home = small_home(tmp_path / "home")
    state = tmp_path / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", state], check=True)
    try:
        with (
            agent(tmp_path, configuration=configuration({"home": home})) as running,
            always_answering(running),
        ):
            before = running.metrics().value("hermes_messages_total", home="home", source="cli")
            fill(state / "ballast")
            add_sessions(home, 20)
            metrics = when(
                running,
                lambda metrics: (
                    metrics.value("hermes_sessions_open", home="home", source="cli") > 3
                ),
                "the new sessions are seen",
            )
            metrics = scanned_again(running, "home")
            assert metrics.value("hermes_home_up", home="home") == 1
            assert metrics.value("hermes_messages_total", home="home", source="cli") == before
            (line,) = [line for line in running.log().splitlines() if "not counted" in line]
            assert "full" in line
            (state / "ballast").unlink()
            when(
                running,
                lambda m: m.value("hermes_messages_total", home="home", source="cli") > before,
                "the new messages are counted",
            )
    finally:
        subprocess.run(["umount", state], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"x" * 4096)
        except OSError:
            pass


def add_sessions(home: Path, count: int) -> None:
    """New open sessions of one message each."""
    rows = "".join(
        f"INSERT INTO sessions (id, source, started_at) VALUES ('s{number}', 'cli', 1);"
        f"INSERT INTO messages (session_id, role, timestamp) VALUES ('s{number}', 'user', 1);"
        for number in range(count)
    )
    subprocess.run(["sqlite3", home / "state.db", rows], check=True)


@pytest.fixture
def trusted_folder() -> Iterator[Path]:
    """A folder in which homes are adopted without being named: no other user can swap them."""
    with tempfile.TemporaryDirectory(dir="/run", prefix="hermes-exporter-test-") as folder:
        yield Path(folder)


def test_a_process_with_an_unspeakable_folder_hides_no_home(
    tmp_path: Path, trusted_folder: Path
) -> None:
    """Homes are also learnt from processes; what those call their folders must not matter."""
    user = trusted_folder / "user"
    small_home(user / ".hermes")
    evil = Path(os.fsdecode(os.fsencode(tmp_path) + b"/ev\xff\nil"))
    evil.mkdir()
    (evil / "state.db").touch()
    with (
        opened(evil / "state.db"),
        agent(tmp_path, environment={"HOME": str(user), "HERMES_HOME": ""}) as running,
        always_answering(running),
    ):
        scanned_again(running, "default")
        assert "scan failed" not in running.log()
