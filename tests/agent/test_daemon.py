"""The agent as users run it: `python -m exporter serve`, scraped, controlled and stopped."""

from __future__ import annotations

import dataclasses
import gzip
import html
import http.client
import json
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.agent.daemon import find_config_file
from exporter.agent.options import Options
from exporter.config import paths
from tests.real.agent import Agent, Metrics, agent
from tests.real.command import refusal, run_json
from tests.real.hanging import hanging_filesystem
from tests.real.hermes import NEWEST
from tests.real.homes import MadeHome, make_home
from tests.real.prometheus import check_metrics, prometheus
from tests.real.waiting import wait_until
from tests.support.running_agent import (
    children,
    complaints,
    configuration,
    is_up,
    scanned_again,
    when,
)
from tests.support.small_homes import small_home

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
pytestmark = pytest.mark.xdist_group("agent")  # they all use one home made by Hermes


# A home made by Hermes, served


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agent")


@pytest.fixture(scope="module")
def home(folder: Path) -> MadeHome:
    return make_home(NEWEST, folder)


@pytest.fixture(scope="module")
def running(folder: Path, home: MadeHome) -> Iterator[Agent]:
    with agent(folder, configuration=configuration({"made": home.path})) as started:
        yield started


@pytest.fixture(scope="module")
def options(folder: Path) -> list[str | Path]:
    """Return the options that make a command read what the agent reads."""
    return ["--config.file", folder / "hermes-exporter.yml", "--state-dir", folder / "state"]


def test_both_formats_parse_also_when_compressed(running: Agent) -> None:
    for accept, parse in (("text/plain", parse_text), (OPENMETRICS, parse_openmetrics)):
        request = urllib.request.Request(
            f"{running.url}/metrics", headers={"Accept": accept, "Accept-Encoding": "gzip"}
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            assert response.headers["Content-Type"].startswith(accept.partition(";")[0])
            body = gzip.decompress(response.read()).decode()
        names = {family.name.removesuffix("_total") for family in parse(body)}
        assert {"hermes_home_up", "hermes_messages", "hermes_session_messages"} <= names


def test_promtool_has_nothing_to_say(running: Agent) -> None:
    assert check_metrics(running.exposition()) == ""


def test_prometheus_sees_the_home(running: Agent) -> None:
    with prometheus([running.address]) as server:
        assert server.wait_for("up == 1")
        ((labels, value),) = server.wait_for("hermes_home_up")
    assert (labels["home"], value) == ("made", 1)


def test_the_api_says_what_the_commands_say_but_no_paths_or_pids(
    running: Agent, home: MadeHome, options: list[str | Path]
) -> None:
    running.next_scan()
    shown = json.loads(running.get("/api/v1/status")[1])
    told = run_json("status", *options)
    assert told["homes"][0].pop("path") == str(home.path)
    assert told["homes"][0].pop("why_down") == ""
    assert [told["homes"][0].pop(key) for key in ("deleted_wal_pids", "lockless_pids")] == [[], []]
    for status in (shown, told):  # the agent needs longer for a verdict than a command
        verdicts = {"live", "held", "dead", "exempt", "unknown"}
        assert status["homes"][0].pop("verdicts").keys() == verdicts
        for key in ("would_reap", "planned_at", "leaked", "unknown", "scanned_at"):
            del status["homes"][0][key]
        for threshold in status["homes"][0]["thresholds"]:
            del threshold["value"]  # other processes use the filesystem too
    assert (shown.pop("refused"), told.pop("refused")) == (0, [])
    assert shown["agent"].pop("started_at") > 0
    assert told["agent"].pop("started_at") is None
    assert shown == told
    assert str(home.path).encode() not in running.get("/api/v1/status")[1]


def test_ids_that_hermes_did_not_make_are_shown_as_hashes(
    running: Agent, options: list[str | Path]
) -> None:
    shown = json.loads(running.get("/api/v1/sessions")[1])
    told = run_json("sessions", *options)
    assert [session.keys() for session in shown] == [session.keys() for session in told]
    ids = {there["id"]: here["id"] for here, there in zip(shown, told, strict=True)}
    assert re.fullmatch(r"sha256:[0-9a-f]{16}", ids["client's own [*] id"])
    made_by_hermes = {name: seen for name, seen in ids.items() if name[:1].isdigit()}
    assert len(made_by_hermes) > 5
    assert all(name == seen for name, seen in made_by_hermes.items())


def test_the_host_page_names_the_home_and_leads_on(running: Agent) -> None:
    status, body = running.get("/")
    page = body.decode()
    assert status == 200
    assert ">made<" in page
    for path in set(re.findall(r'(?:href|src)="([^"#]+)"', page)):
        assert running.get(html.unescape(path))[0] == 200, path


def test_the_agent_itself_takes_few_series(running: Agent) -> None:
    own = [
        (name, labels)
        for name, labels in running.metrics()
        if "home" not in dict(labels) and not name.startswith(("process_", "python_"))
    ]
    assert len(own) <= 60


# Starting


def test_ready_only_after_the_first_scan(tmp_path: Path) -> None:
    source, mount = small_home(tmp_path / "source"), tmp_path / "mount"
    mount.mkdir()
    with hanging_filesystem(source, mount) as filesystem:
        filesystem.hang()
        with agent(tmp_path, configuration=configuration({"slow": mount}), ready=False) as started:
            assert filesystem.asked_while_hanging.wait(60)
            assert started.get("/-/ready")[0] == 503
            assert started.get("/-/healthy")[0] == 200
            assert is_up(started.metrics(), "slow") is None
            filesystem.recover()
            started.wait_ready()
            assert is_up(started.metrics(), "slow")


def test_a_second_agent_with_the_same_state_is_refused(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    with agent(tmp_path, [home]):
        status, line = refusal(
            "serve",
            *("--web.listen-address", "127.0.0.1:0"),
            *("--home", home, "--state-dir", tmp_path / "state"),
        )
    assert status == 1
    assert "another hermes-exporter uses" in line
    assert "--state-dir" in line


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, line = refusal(
            "serve",
            *("--web.listen-address", address),
            *("--home", home, "--state-dir", tmp_path / "state"),
        )
    assert status == 1
    assert address in line


def test_the_systems_configuration_is_read_where_no_other_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is made after the start: a reload looks for it again."""
    file = tmp_path / "system.yml"
    monkeypatch.setattr(paths, "SYSTEM_CONFIG_FILE", str(file))
    served = Options(state_dir=str(tmp_path), looks_for_config=True)
    assert find_config_file(served) is None
    file.write_text("scan: {interval: 1s}\n")
    assert find_config_file(served) == str(file)
    assert find_config_file(dataclasses.replace(served, config_file="mine.yml")) == "mine.yml"
    assert find_config_file(dataclasses.replace(served, looks_for_config=False)) is None


# Stopping


def test_sigterm_lets_answers_finish_and_leaves_nothing_behind(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    with agent(tmp_path, [home]) as running:
        ours = own_processes(running)
        assert len(ours) == 3
        host, port = running.address.split(":")
        with socket.create_connection((host, int(port)), timeout=120) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n")
            wait_until(lambda: unread(running, slow) == 0, "the agent has read the first half")
            running.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "msg=stopping" in running.log(), "the agent is stopping")
            slow.sendall(b"\r\n")
            response = http.client.HTTPResponse(slow)
            response.begin()
            assert response.status == 200
            assert b"hermes_home_up" in response.read()
        assert running.process.wait(90) == 0
        assert psutil.wait_procs(ours, timeout=90)[1] == []
    assert {file.name for file in (tmp_path / "state").iterdir()} == {"agent.db", "agent.lock"}
    assert {file.name for file in home.iterdir()} == {"state.db", "sessions"}


def own_processes(running: Agent) -> list[psutil.Process]:
    modules = ("worker", "path_probe", "fork_server")
    return [child for name in modules for child in children(running, f"exporter.workers.{name}")]


def unread(running: Agent, client: socket.socket) -> int:
    """Return how many bytes of this client the agent has not read, according to the kernel."""
    port = f":{client.getsockname()[1]:04X}"
    for line in Path(f"/proc/{running.pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[2].endswith(port):
            return int(fields[4].partition(":")[2], 16)
    return -1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_any_moment_of_the_start_ends_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    with agent(tmp_path, [small_home(tmp_path / "home")], ready=False) as running:
        running.process.send_signal(number)
        assert running.process.wait(90) == 0
    assert "level=warn" not in running.log()
    assert "level=error" not in running.log()


def test_workers_do_not_outlive_a_killed_agent(tmp_path: Path) -> None:
    with agent(tmp_path, [small_home(tmp_path / "home")]) as running:
        ours = own_processes(running)
        assert len(ours) == 3
        running.kill()
        assert psutil.wait_procs(ours, timeout=90)[1] == []


# Reloading

MARATHON = "hermes_sessions_marathon"
RELOADED = "hermes_exporter_config_last_reload_successful"
LIVE = "reaper: {min_idle: 24h}\n"
"""Only sessions that are live or held count as marathons."""


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[tuple[Agent, Path]]:
    """Run an agent that has scanned once and will not scan again for an hour."""
    home = small_home(tmp_path / "home")
    with agent(
        tmp_path, [home], "--web.enable-lifecycle", configuration=f"scan: {{interval: 1h}}\n{LIVE}"
    ) as running:
        yield running, tmp_path / "hermes-exporter.yml"


def over_the_limit(metrics: Metrics) -> float:
    return metrics.value(MARATHON, home="default", level="over")


def test_sighup_puts_new_settings_into_effect(idle: tuple[Agent, Path]) -> None:
    running, file = idle
    assert over_the_limit(running.metrics()) == 0
    file.write_text(f"scan: {{interval: 1s}}\nmarathon: {{max_messages: 1}}\n{LIVE}")
    running.process.send_signal(signal.SIGHUP)
    metrics = scanned_again(running, "default")
    assert over_the_limit(metrics) == 3
    assert metrics.value(RELOADED) == 1


def test_a_bad_file_changes_nothing_and_says_so(idle: tuple[Agent, Path]) -> None:
    running, file = idle
    file.write_text("marathon: {max_messages: 1}\nscan: {intervall: 1s}\n")
    running.process.send_signal(signal.SIGHUP)
    metrics = when(running, lambda metrics: metrics.value(RELOADED) == 0, "the reload has failed")
    assert over_the_limit(metrics) == 0
    (line,) = [line for line in running.log().splitlines() if "level=error" in line]
    assert f"{file}:2" in line
    assert "interval" in line
    file.write_text(f"marathon: {{max_messages: 1}}\n{LIVE}")
    running.process.send_signal(signal.SIGHUP)
    metrics = when(running, lambda metrics: over_the_limit(metrics) == 3, "the file is in effect")
    assert metrics.value(RELOADED) == 1


def test_a_home_taken_out_of_the_configuration_is_forgotten_at_once(tmp_path: Path) -> None:
    homes = {name: small_home(tmp_path / name) for name in ("kept", "dropped")}
    with agent(tmp_path, configuration=configuration(homes)) as running:
        del homes["dropped"]
        (tmp_path / "hermes-exporter.yml").write_text(configuration(homes))
        running.process.send_signal(signal.SIGHUP)
        metrics = when(
            running, lambda metrics: is_up(metrics, "dropped") is None, "one home is dropped"
        )
        assert is_up(metrics, "kept")
        assert complaints(running, "dropped") == []


def post(running: Agent, path: str) -> tuple[int, str]:
    request = urllib.request.Request(f"{running.url}{path}", data=b"", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_reload_by_http_answers_with_the_outcome(idle: tuple[Agent, Path]) -> None:
    running, file = idle
    file.write_text(f"marathon: {{max_messages: 1}}\n{LIVE}")
    assert post(running, "/-/reload")[0] == 200
    when(running, lambda metrics: over_the_limit(metrics) == 3, "the new limit is in effect")
    file.write_text("marathon: {max_messages: many}\n")
    status, message = post(running, "/-/reload")
    assert status == 500
    assert f"{file}:1" in message


def test_reload_by_http_is_off_unless_enabled(tmp_path: Path) -> None:
    with agent(tmp_path, [small_home(tmp_path / "home")]) as running:
        status, message = post(running, "/-/reload")
        assert status == 403
        assert "--web.enable-lifecycle" in message
