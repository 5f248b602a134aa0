"""Small files: absent is not unreadable, and nothing but a plain file of bounded size is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.errors import HomeError
from exporter.hermes.small_files import read_json, read_number, read_small


def test_a_file_that_does_not_exist_is_none(tmp_path: Path) -> None:
    assert read_small(str(tmp_path / "none")) is None
    assert read_json(str(tmp_path / "none")) is None
    (tmp_path / "file").touch()
    assert read_small(str(tmp_path / "file" / "below")) is None


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"four")
    assert read_small(str(tmp_path / "file"), 4) == b"four"
    with pytest.raises(HomeError, match="4 bytes, more than 3"):
        read_small(str(tmp_path / "file"), 3)


def test_what_is_no_plain_file_is_refused_and_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "."):
        with pytest.raises(HomeError, match="cannot read"):
            read_small(str(tmp_path / name))


@pytest.mark.parametrize("content", [b"{", b"", b'"\\ud800"', b'"\xff"', b"[" * 100_000])
def test_what_is_no_json_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(HomeError, match="not JSON"):
        read_json(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"1700000000.25\n", 1700000000.25),
        (b"", None),
        (b"soon", None),
        (b"\xff", None),
        (b"0", None),
        (b"-1", None),
        (b"1e11", None),
        (b"nan", None),
        (b"inf", None),
        (b"1" + b" " * 256, None),
    ],
)
def test_only_a_plausible_number_is_one(
    tmp_path: Path, content: bytes, expected: float | None
) -> None:
    (tmp_path / "file").write_bytes(content)
    assert read_number(str(tmp_path / "file")) == expected
