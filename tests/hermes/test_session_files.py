"""The session that a file of sessions/ belongs to, by whole ids, with any ids of clients."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from exporter.hermes.session_files import FileOwners, is_surely_hermes, kind_of, safe_name
from exporter.snapshot import DiskKind
from tests.real.hermes import NEWEST, python_for

STAMP = "20260101_120000_123456"
ODD_IDS = [
    "../../etc/passwd",
    "*",
    "[a-z]?",
    "two\nlines",
    " padded ",
    "naïve-ünïcode",
    "x" * 300,
    "._dots_.",
    "a.b.c",
    "",
]


def test_each_form_of_a_file_name_leads_to_its_session() -> None:
    owners = FileOwners(["20260101_120000_aaaaaa", "my.chat"])
    for name in (
        "session_20260101_120000_aaaaaa.json",
        "20260101_120000_aaaaaa.json",
        "20260101_120000_aaaaaa.jsonl",
        f"request_dump_20260101_120000_aaaaaa_{STAMP}.json",
    ):
        assert owners.of(name) == "20260101_120000_aaaaaa"
    for name in ("my.chat.jsonl", f"session_{safe_name('my.chat')}.json"):
        assert owners.of(name) == "my.chat"


def test_a_dump_belongs_to_one_session_even_if_another_id_is_its_prefix() -> None:
    owners = FileOwners(["A", "A_B"])
    assert owners.of(f"request_dump_A_B_{STAMP}.json") == "A_B"
    assert owners.of(f"request_dump_A_{STAMP}.json") == "A"
    assert FileOwners(["A"]).of(f"request_dump_A_B_{STAMP}.json") is None


def test_an_id_is_never_used_as_a_pattern() -> None:
    name = f"request_dump_20260101_120000_aaaaaa_{STAMP}.json"
    assert FileOwners(["*", ".*", "?", "2026", "", "[0-9_a]*"]).of(name) is None


def test_the_routing_mirror_and_unknown_files_have_no_kind() -> None:
    for name in ("sessions.json", ".sessions_x.tmp", "notes.txt", "request_dump_A_yesterday.json"):
        assert kind_of(name) is None
    assert kind_of("A.jsonl") is DiskKind.TRANSCRIPTS
    assert kind_of(f"request_dump_A_{STAMP}.json") is DiskKind.REQUEST_DUMPS


def test_a_users_own_file_is_never_taken_for_a_file_of_hermes() -> None:
    for name in ("notes.json", "session_notes.json", "todo_0123456789ab.json", "2026.jsonl"):
        assert not is_surely_hermes(name)
    for name in (
        "session_20260101_120000_aaaaaa.json",
        "cron_job1_20260101_120000.jsonl",
        f"session_{safe_name('../x')}.json",
        f"request_dump_{safe_name('*')}_{STAMP}.json",
    ):
        assert is_surely_hermes(name)


@pytest.mark.parametrize("version", ["0.18.2", NEWEST])
def test_ids_unfit_for_file_names_are_written_as_hermes_writes_them(
    version: str, tmp_path: Path
) -> None:
    hermes = python_for(version)
    code = (
        "import json, sys; from run_agent import _safe_session_filename_component as safe; "
        "print(json.dumps([safe(each) for each in json.load(sys.stdin)]))"
    )
    done = subprocess.run(
        [str(hermes.python), "-c", code],
        input=json.dumps(ODD_IDS),
        env=hermes.environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [safe_name(each) for each in ODD_IDS] == json.loads(done.stdout.splitlines()[-1])
    assert all(re.fullmatch(r"[\w-]+", safe_name(each)) for each in ODD_IDS)
