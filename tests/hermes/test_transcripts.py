"""The messages of a transcript are counted, in each form that Hermes writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from exporter.hermes.transcripts import messages_in
from tests.real.hermes import VERSIONS, python_for


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transcript_of_each_release_says_how_many_messages_it_has(
    version: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    python_for(version).run("write_transcripts", home, sessions=["a"], dumped=[], characters=9)
    assert messages_in(str(home), "session_a.json") == 2


def test_each_line_of_a_gateway_is_a_message_but_what_describes_the_session(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    lines = [{"role": "session_meta", "tools": []}, *({"role": "user", "content": "hi"},) * 3]
    text = "\n".join(map(json.dumps, lines)) + "\n\n"
    (tmp_path / "sessions/a.jsonl").write_text(text)
    assert messages_in(str(tmp_path), "a.jsonl") == 3


def test_what_a_message_says_is_not_taken_for_their_number(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    said = {"message_count": 1, "messages": [{"content": '"message_count": 900'}]}
    (tmp_path / "sessions/session_a.json").write_text(json.dumps(said))
    assert messages_in(str(tmp_path), "session_a.json") == 1


def test_what_cannot_be_read_has_an_unknown_number(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "a.json").write_text("{}")
    (folder / "b.json").symlink_to("a.json")
    os.mkfifo(folder / "c.jsonl")
    (folder / "large.jsonl").touch()
    os.truncate(folder / "large.jsonl", 1 << 30)
    for name in ("a.json", "b.json", "c.jsonl", "large.jsonl"):
        assert messages_in(str(tmp_path), name) is None, name
    assert messages_in(str(tmp_path), "none.json") == 0
