"""Reading one process from /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.evidence.process import PinnedProcess
from exporter.evidence.procfs import parse_stat, read_real_uid, read_stat, split_link
from tests.support.evidence import NOBODY, holding, puppet

NAMES = {"state.db"}


def test_a_program_name_with_blanks_and_brackets_does_not_shift_the_fields() -> None:
    with puppet() as process:
        plain = process.stat()
        process.do("open('/proc/self/comm', 'w').write('a) Z (1 2')")
        assert process.stat().start_ticks == plain.start_ticks
        assert process.stat().parent == os.getpid()


def test_a_program_name_is_not_taken_for_a_line_of_the_status() -> None:
    """The kernel escapes a newline in it, and no carriage return. Root's files have no limit."""
    with puppet() as process:
        process.do("open('/proc/self/comm', 'w').write('a\\rUid: 0 0 0')")
        process.do(f"os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})")
        assert read_real_uid("/proc", process.pid) == NOBODY
        with PinnedProcess("/proc", process.pid) as pinned:
            assert pinned.user_and_namespace_pid() == (NOBODY, process.pid)


@pytest.mark.parametrize("line", [b"", b"1 (x) S", b"1 (x) S a b c d e f g h i j k l m n o"])
def test_an_invalid_stat_line_is_no_process(line: bytes) -> None:
    assert parse_stat(line) is None


def test_a_process_that_does_not_exist_has_no_stat() -> None:
    with puppet() as process:
        pass
    assert read_stat("/proc", process.pid) is None


def test_fork_keeps_the_program_image_and_exec_makes_a_new_one() -> None:
    with puppet() as process:
        forked = read_stat("/proc", int(process.do("fork()")))
        process.do("child = subprocess.Popen(['sleep', '600'])")
        executed = read_stat("/proc", int(process.do("child.pid")))
        process.do("child.kill()")
        assert forked is not None
        assert executed is not None
        assert forked.start_stack == process.stat().start_stack != executed.start_stack


@pytest.mark.parametrize(
    ("link", "parts"),
    [
        ("/home/a/.hermes/state.db", ("/home/a/.hermes", "state.db", "", False)),
        ("/h/state.db-wal", ("/h", "state.db", "-wal", False)),
        ("/h/state.db-shm (deleted)", ("/h", "state.db", "-shm", True)),
        ("/h/state.db (deleted)", ("/h", "state.db", "", True)),
        ("/h/a\nb\udcff/state.db", ("/h/a\nb\udcff", "state.db", "", False)),
        ("/state.db", ("/", "state.db", "", False)),
        ("/h/state.db.malformed-backup-20260101_000000", None),
        ("/h/mystate.db", None),
        ("/h/state.db-journal", None),
        ("/h/state.db/other", None),
        ("socket:[12345]", None),
        ("state.db", None),
    ],
)
def test_only_links_to_a_database_and_its_sidecars_are_recognised(
    link: str, parts: tuple[str, str, str, bool] | None
) -> None:
    assert split_link(link, NAMES) == parts


def test_a_pinned_process_is_never_taken_for_its_successor(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        pinned = PinnedProcess("/proc", process.pid)
        with pinned:
            assert pinned.descriptors(NAMES)
            process.end()
            with pytest.raises(OSError, match="No such"):
                pinned.stat()


def test_the_children_of_every_thread_are_listed() -> None:
    with puppet() as process:
        process.do("import threading; children = []")
        process.do(
            "start = lambda: (children.append(subprocess.Popen(['sleep', '600'])), keep.acquire())"
        )
        process.do("keep = threading.Lock()")
        process.do("keep.acquire()")
        process.do("thread = threading.Thread(target=start, daemon=True)")
        process.do("thread.start()")
        process.do("import time; [time.sleep(0.01) for _ in iter(lambda: len(children), 1)]")
        child = int(process.do("children[0].pid"))
        with PinnedProcess("/proc", process.pid) as pinned:
            assert pinned.children() == [child]
        process.do("children[0].kill()")
