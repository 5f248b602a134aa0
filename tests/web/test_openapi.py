"""What the agent answers is what its OpenAPI description says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from exporter.web.openapi import document
from tests.real.agent import Agent, agent
from tests.real.command import run
from tests.real.schemathesis import schemathesis
from tests.support.running_agent import configuration, scanned_again
from tests.support.small_homes import small_home

pytestmark = pytest.mark.xdist_group("openapi")
DESCRIPTION = json.loads(document())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("openapi")
    home = small_home(folder / "home")
    by_hand = ("--home", home, "--state-dir", folder / "hand")
    assert run("reap", "--yes", *by_hand).returncode == 0
    assert run("undo", "--last", *by_hand).returncode == 0
    with agent(folder, configuration=configuration({"made": home})) as started:
        scanned_again(started, "made")
        yield started


def answered(running: Agent, path: str) -> Any:
    status, body = running.get(path)
    assert status == 200, body
    return json.loads(body)


def check(path: str, answer: Any) -> None:
    found = DESCRIPTION["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
    schema = {**found["schema"], "components": closed(DESCRIPTION["components"])}
    Draft202012Validator(closed(schema)).validate(answer)


def closed(schema: Any) -> Any:
    """The same, but keys that it does not name are refused: each must be described."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(each) for name, each in schema.items()}
    return inner | {"additionalProperties": False} if "properties" in schema else inner


def test_every_path_answers_as_described(running: Agent) -> None:
    assert answered(running, "/api/v1/openapi.json") == DESCRIPTION
    for path in ("status", "sessions", "runs", "trends"):
        check(f"/api/v1/{path}", answered(running, f"/api/v1/{path}"))
    session = answered(running, "/api/v1/sessions")[0]["id"]
    check("/api/v1/sessions/{id}", answered(running, f"/api/v1/sessions/{session}"))
    runs = answered(running, "/api/v1/runs")
    assert [each["kind"] for each in runs] == ["undo", "reap"]
    found = answered(running, f"/api/v1/runs/{runs[1]['run']}")
    check("/api/v1/runs/{run}", found)
    assert len(found[0]["items"]) == 3
    assert running.get("/api/v1/sessions/20990101_000000_aaaaaa")[0] == 404
    assert running.get("/api/v1/runs/none")[0] == 404


def test_the_pages_show_the_numbers_of_the_json(running: Agent) -> None:
    status = answered(running, "/api/v1/status")["homes"][0]
    page = running.get("/")[1].decode()
    assert f"Open sessions: {status['sessions']['open']}" in page
    for verdict, number in status["verdicts"].items():
        assert f">{number} {verdict}<" in page
    metrics = running.metrics()
    assert status["sessions"]["open"] == metrics.value(
        "hermes_sessions_open", home="made", source="cli"
    )
    rows = answered(running, "/api/v1/sessions")
    listed = running.get("/sessions")[1].decode()
    explained = running.get(f"/sessions/{rows[0]['id']}")[1].decode()
    assert all(row["id"] in listed for row in rows)
    assert rows[0]["verdict"] in explained
    assert "To be dead, all of this must hold" in explained
    run_id = answered(running, "/api/v1/runs")[1]["run"]
    assert f'href="/runs/{run_id}"' in page
    assert all(row["id"] in running.get(f"/runs/{run_id}")[1].decode() for row in rows)


@pytest.mark.full
def test_schemathesis_finds_nothing(running: Agent, tmp_path: Path) -> None:
    done = schemathesis(
        *("run", f"{running.url}/api/v1/openapi.json", "--checks", "all", "--seed", "1"),
        *("--max-examples", "200", "--warnings", "off", "--max-failures", "10"),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    assert "6 selected / 6 total" in done.stdout
    assert "API Links:    2 covered / 2" in done.stdout  # sessions and runs that are there, too
