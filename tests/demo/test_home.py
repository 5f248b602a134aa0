"""The home that `hermes-exporter demo` shows has a bit of everything and nothing of anybody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from exporter.demo.home import make
from tests.real.hermes import REPOSITORY

NOW = 1_750_000_000.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(make(str(tmp_path_factory.mktemp("demo")), now=NOW))


def ask(database: Path, question: str) -> Any:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{database}?immutable=1", flags=flags)
    answer = connection.execute(question).get
    connection.close()
    return answer


def test_sessions_have_the_fields_shape(home: Path) -> None:
    total, still_open, short, empty, marathons = ask(
        home / "state.db",
        "SELECT count(*), sum(ended_at IS NULL), sum(message_count <= 5), sum(message_count = 0),"
        " sum(message_count > 200 AND ended_at IS NULL) FROM sessions",
    )
    assert total == 400
    assert still_open / total == pytest.approx(0.29, abs=0.01)
    assert short / total == pytest.approx(0.67, abs=0.01)
    assert empty > 100
    assert marathons >= 1


def test_the_marathon_fails_at_one_tool_again_and_again(home: Path) -> None:
    results = ask(
        home / "state.db",
        "SELECT content FROM messages WHERE role = 'tool' AND session_id ="
        " (SELECT id FROM sessions ORDER BY message_count DESC LIMIT 1) ORDER BY id DESC LIMIT 10",
    )
    assert all(json.loads(result)["exit_code"] == 1 for result in results)


def test_every_open_chat_is_routed_in_the_database_and_in_the_file(home: Path) -> None:
    chats = ask(
        home / "state.db",
        "SELECT json_group_array(id) FROM (SELECT id FROM sessions"
        " WHERE ended_at IS NULL AND session_key IS NOT NULL ORDER BY id)",
    )
    rows = ask(
        home / "state.db",
        "SELECT json_group_array(id) FROM (SELECT json_extract(entry_json, '$.session_id') AS id"
        " FROM gateway_routing ORDER BY id)",
    )
    mirror = json.loads((home / "sessions/sessions.json").read_text())
    routed = sorted(e["session_id"] for key, e in mirror.items() if not key.startswith("_"))
    assert rows == chats
    assert json.loads(chats) == routed != []


def test_it_has_a_profile_transcripts_dumps_logs_cron_and_a_dead_gateway(home: Path) -> None:
    for pattern in (
        "profiles/work/state.db",
        "sessions/session_*.json",
        "sessions/*_*.jsonl",
        "sessions/request_dump_*.json",
        "logs/agent.log",
        "cron/output/*/*.md",
        "gateway_state.json",
        "checkpoints/legacy-*/*/HEAD",
    ):
        assert list(home.glob(pattern)), pattern
    assert float((home / "cron/ticker_heartbeat").read_text()) < NOW
    assert not Path("/proc", str(json.loads((home / "gateway.pid").read_text())["pid"])).exists()
    assert ask(home / "kanban.db", "SELECT count(*) FROM tasks WHERE status = 'running'") == 1


def test_files_are_as_old_as_what_they_tell(home: Path) -> None:
    for transcript in home.glob("sessions/session_*.json"):
        assert transcript.stat().st_mtime <= NOW


def test_checkpoints_are_sound_git_and_some_lost_their_folder(home: Path) -> None:
    base = home / "checkpoints"
    legacy = [path.parent for path in base.glob("*/HERMES_WORKDIR")]
    workdirs = [Path((repo / "HERMES_WORKDIR").read_text().strip()) for repo in legacy]
    assert {workdir.exists() for workdir in workdirs} == {True, False}
    for repo in [*legacy, base / "store"]:
        checked = subprocess.run(
            ["git", "--git-dir", str(repo), "fsck", "--strict"],
            env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"},
            capture_output=True,
            text=True,
        )
        assert checked.returncode == 0, checked.stderr


def test_the_same_seed_makes_the_same_home(home: Path, tmp_path: Path) -> None:
    again = Path(make(str(tmp_path), now=NOW))
    question = "SELECT json_group_array(id) FROM sessions"
    assert ask(again / "state.db", question) == ask(home / "state.db", question)


def test_every_process_makes_the_same_home(tmp_path: Path) -> None:
    """The order of a set of names is another one in every process; no draw may depend on it."""
    question = (
        "SELECT json_group_array(json_array(id, chat_id, ended_at, message_count, system_prompt))"
        " FROM sessions"
    )
    answers = set()
    for seed in ("0", "1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        script = f"from exporter.demo.home import make; make({str(folder)!r}, now={NOW})"
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(REPOSITORY)}
        subprocess.run([sys.executable, "-c", script], env=environment, check=True)
        answers.add(ask(folder / ".hermes/state.db", question))
    assert len(answers) == 1


def test_nothing_in_it_looks_like_a_person_or_a_secret(home: Path) -> None:
    text = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    for private in (b"@gmail", b"sk-", b"ghp_", b"BEGIN PRIVATE KEY"):
        assert private not in text
