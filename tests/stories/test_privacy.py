"""Nothing private leaves a home: not in metrics, pages, logs or state, nor on a terminal."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.real.agent import Agent, agent
from tests.real.command import run, run_json
from tests.support.canaries import Cage, salted_home, secretive_holder
from tests.support.running_agent import scanned_again, when_up

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
pytestmark = pytest.mark.xdist_group("privacy")  # one home serves them all


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("privacy")


@pytest.fixture(scope="module")
def cage() -> Cage:
    return Cage()


@pytest.fixture(scope="module")
def home(folder: Path, cage: Cage) -> Iterator[Path]:
    home = salted_home(folder, cage)
    with secretive_holder(home, folder, cage):
        yield home


@pytest.fixture(scope="module")
def running(folder: Path, home: Path) -> Iterator[Agent]:
    with agent(folder, [home], "--log.level=debug") as started:
        when_up(started, "default", "default/p")
        scanned_again(started, "default")
        yield started


def test_the_canaries_are_where_private_things_are(home: Path, cage: Cage) -> None:
    """Without this the tests below would prove little."""
    for place in ("sessions.title", "messages.content", "sessions.display_name", "tasks.title"):
        assert place in cage.places.values()
    assert len(cage.places) > 100
    assert cage.escaped((home / "state.db").read_bytes().decode(errors="replace"))


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/",
        "/sessions",
        "/api/v1/status",
        "/api/v1/sessions",
        "/api/v1/runs",
        "/api/v1/trends",
        "/-/ready",
        "/nothing/here",
    ],
)
def test_no_page_tells(running: Agent, cage: Cage, path: str) -> None:
    body = running.get(path)[1].decode()
    assert body
    assert cage.escaped(body) == set()


def test_no_page_of_a_session_tells(running: Agent, cage: Cage) -> None:
    ids = [row["id"] for row in json.loads(running.get("/api/v1/sessions")[1])]
    assert any(each.startswith("sha256:") for each in ids)
    for session_id in ids:
        for path in (f"/sessions/{session_id}", f"/api/v1/sessions/{session_id}"):
            status, body = running.get(path)
            assert status == 200
            assert cage.escaped(body.decode()) == set()


def test_no_page_of_a_run_tells(home: Path, cage: Cage, tmp_path: Path) -> None:
    """The operator's own history names what a run took, also by names that clients chose."""
    copy = Path(shutil.copytree(home, tmp_path / ".hermes", symlinks=True))
    with contextlib.closing(apsw.Connection(str(copy / "state.db"))) as state:
        state.execute("UPDATE sessions SET ended_at = started_at + 1, end_reason = 'cli_close'")
    names = ("request_dumps", "empty_sessions", "trivial_sessions", "old_sessions")
    policies = {name: {"older_than": "1s"} for name in names}
    settings = json.dumps({"prune": {"policies": policies, "keep": {"newest": 1}}})
    (tmp_path / "config.yml").write_text(settings)
    where = ("--home", copy, "--config.file", tmp_path / "config.yml")
    assert run("prune", "--yes", *where, "--state-dir", tmp_path / "hand").returncode == 0
    with agent(tmp_path, [copy], configuration=settings) as started:
        runs = {each["run"] for each in json.loads(started.get("/api/v1/runs")[1])}
        told = run("history", *runs, *where, "--state-dir", tmp_path / "hand").stdout
        assert cage.escaped(told)
        for each in runs:
            for path in (f"/runs/{each}", f"/api/v1/runs/{each}", "/"):
                status, body = started.get(path)
                assert status == 200
                assert cage.escaped(body.decode()) == set()
                assert "sha256:" in body.decode() or path == "/"


def test_openmetrics_does_not_tell_either(running: Agent, cage: Cage) -> None:
    assert cage.escaped(running.get("/metrics", Accept=OPENMETRICS)[1].decode()) == set()


def test_no_log_line_tells(running: Agent, cage: Cage) -> None:
    assert "listening" in running.log()
    assert cage.escaped(running.log()) == set()


def test_the_state_directory_keeps_nothing(running: Agent, folder: Path, cage: Cage) -> None:
    files = list((folder / "state").iterdir())
    assert files
    for file in files:
        assert cage.escaped(file.read_bytes().decode(errors="replace")) == set()


@pytest.mark.parametrize("command", ["status", "check"])
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_commands_about_homes_do_not_tell(
    home: Path, folder: Path, cage: Cage, command: str, form: list[str]
) -> None:
    state = folder / f"state-of-{command}"
    done = run(command, *form, "--home", home, "--state-dir", state, "--log.level=debug")
    assert "default" in done.stdout
    assert cage.escaped(done.stdout + done.stderr) == set()


def test_sessions_tells_the_operator_the_ids_and_sources_alone(
    home: Path, folder: Path, cage: Cage
) -> None:
    state = folder / "state-of-sessions"
    found = run_json("sessions", "--home", home, "--state-dir", state)
    shown = {cage.places[name[:13]] for name in (each["id"] for each in found) if "Canary" in name}
    assert shown == {"session id"}
    for session in found:
        del session["id"], session["source"]
    assert cage.escaped(json.dumps(found)) == set()


def test_explain_tells_of_the_session_it_was_asked_about_alone(
    home: Path, folder: Path, cage: Cage
) -> None:
    options: list[str | Path] = ["--home", home, "--state-dir", folder / "state-of-explain"]
    asked = next(each["id"] for each in run_json("sessions", *options) if "Canary" in each["id"])
    for form in ([], ["--json"]):
        done = run("explain", asked, *form, *options, "--log.level=debug")
        assert done.returncode == 0
        assert cage.escaped(done.stdout + done.stderr) <= {"session id", "source"}


def test_the_textfile_does_not_tell(home: Path, folder: Path, cage: Cage) -> None:
    file = folder / "hermes.prom"
    run("textfile", file, "--home", home, "--state-dir", folder / "state-of-textfile")
    assert "hermes_home_up" in file.read_text()
    assert cage.escaped(file.read_text()) == set()
