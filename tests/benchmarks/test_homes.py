"""The homes that benchmarks read are made once and whole."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from benchmarks import homes
from benchmarks.homes import Part


def test_a_home_is_the_fields_picture_at_its_scale_and_made_once(tmp_path: Path) -> None:
    home = homes.home(0.02, Part.DATABASE, cache=tmp_path)
    assert {path.name for path in home.iterdir()} == {"state.db"}
    made = (home / "state.db").stat()
    assert homes.home(0.02, cache=tmp_path) == home
    assert {path.name for path in home.iterdir()} == set(Part)
    assert (home / "state.db").stat().st_ino == made.st_ino

    connection = apsw.Connection(str(home / "state.db"))
    counted = connection.execute(
        "SELECT count(*), sum(ended_at IS NULL), sum(message_count),"
        " (SELECT count(*) FROM messages), avg(length(system_prompt)) FROM sessions"
    ).get
    connection.close()
    assert counted == (200, 58, 4_840, 4_840, 24_000.0)
    assert len(list(home.glob("sessions/session_*.json"))) == 100
    assert len(list(home.glob("checkpoints/*/HERMES_WORKDIR"))) == 22
    assert len(list(home.glob("checkpoints/store/projects/*.json"))) == 4


def test_a_part_that_failed_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(place: Path, *_: object) -> None:
        place.mkdir()
        raise OSError("disk full")

    monkeypatch.setitem(homes._MAKERS, Part.TRANSCRIPTS, fail)
    with pytest.raises(OSError, match="disk full"):
        homes.home(0.02, Part.TRANSCRIPTS, cache=tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.name.startswith("sessions")] == []
