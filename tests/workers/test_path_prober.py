"""Paths that never answer, and paths chosen by other users."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from exporter.workers.path_prober import PathProber
from tests.real.hanging import hanging_filesystem
from tests.support.evidence import NOBODY
from tests.support.small_homes import small_home

ADA, BOB = 4001, 4002


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_one_users_hanging_paths_take_no_question_from_another(folder: Path) -> None:
    good = str(small_home(folder / "good"))
    source, mount = folder / "source", folder / "mount"
    source.mkdir()
    mount.mkdir()
    with hanging_filesystem(source, mount) as filesystem, closing(PathProber()) as prober:
        prober.begin_scan()
        assert prober.inspect(good, ADA) is not None
        filesystem.hang()
        answers = [prober.inspect(str(mount / f"home{number}"), ADA) for number in range(40)]
        assert answers.count(None) == 16, "so many questions of one user may be open"
        refused = prober.inspect(good, ADA)
        assert refused is not None
        assert refused.unreadable == "too many other paths do not answer"
        for named_by_uid in (BOB, None):
            seen = prober.inspect(good, named_by_uid)
            assert seen is not None
            assert seen.looks_like_home
        filesystem.recover()


def test_a_path_that_a_process_names_is_looked_at_with_no_more_than_its_users_rights(
    folder: Path,
) -> None:
    """Otherwise any user could make root look anywhere."""
    closed = folder / "closed"
    small_home(closed / "home")
    closed.chmod(0o700)
    with closing(PathProber()) as prober:
        prober.begin_scan()
        as_root = prober.inspect(str(closed / "home"), NOBODY)
        as_user = prober.inspect(str(closed / "home"), NOBODY, with_rights_of_user=True)
        again = prober.inspect(str(closed / "home"), NOBODY)
    assert as_root is not None
    assert as_root.is_directory
    assert as_root == again
    assert as_user is not None
    assert (as_user.is_directory, as_user.owner) == (False, -1)
    assert "Permission denied" in as_user.unreadable
