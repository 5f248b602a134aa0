"""The image, built and run by a real Docker Engine on homes of the real hermes-agent."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter import __version__
from tests.deploy.docker_engine import Engine, engine, import_base_image
from tests.real.agent import Metrics
from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.real.holders import holder
from tests.real.homes import make_home
from tests.real.prometheus import free_port
from tests.real.waiting import wait_until

OWNER = 12345
IMAGE = "hermes-exporter"
CONFINED = (
    *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--memory", "128m", "--health-interval", "1s"),
)
"""What docs/install.md recommends, and a health check that does not keep a test waiting."""
ALL_SEEING = (
    *("--pid", "host", "--user", "0", "--security-opt", "apparmor=unconfined"),
    *(f"--cap-add={name}" for name in ("SYS_PTRACE", "DAC_READ_SEARCH", "SETUID", "SETGID")),
    "--cap-add=KILL",
)
IMPATIENT = "scan: {interval: 300ms}\nreaper: {min_idle: 1s, interval: 300ms}\n"
pytestmark = pytest.mark.xdist_group("docker")


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(
        ["hadolint", "--failure-threshold", "style", REPOSITORY / "Dockerfile"],
        capture_output=True,
        text=True,
        env={"PATH": f"{REPOSITORY / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0


def test_all_that_is_copied_reaches_the_engine_and_nothing_else() -> None:
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    copied = {
        source.rstrip("/")
        for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE)
        for source in line.split()[:-1]
    }
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == copied
    assert "*" in ignored
    assert all((REPOSITORY / source).exists() for source in copied)


def test_the_documented_options_are_those_that_are_tested() -> None:
    page = (REPOSITORY / "docs/install.md").read_text()
    (block,) = re.findall(r"^docker run .*?[^\\]$", page, re.MULTILINE | re.DOTALL)
    words = block.replace("\\\n", " ").split()
    tested = [word for word in CONFINED if not word.startswith("--health")]
    assert [word for word in tested if word not in {*words, "1s"}] == []
    (rights,) = re.findall(r"^\| `(--pid=host .*--user 0.*?)`", page, re.MULTILINE)
    added = {word.removeprefix("--cap-add=") for word in ALL_SEEING if "--cap-add" in word}
    assert {*re.findall(r"--cap-add (\w+)", rights)} == added
    assert "--security-opt apparmor=unconfined" in rights


class Contained:
    """An agent in a container."""

    def __init__(self, docker: Engine, name: str, url: str) -> None:
        self.docker = docker
        self.name = name
        self.url = url

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as response:
            body: bytes = response.read()
        return body.decode()

    def metrics(self) -> Metrics:
        return Metrics(
            ((sample.name, frozenset(sample.labels.items())), sample.value)
            for family in text_string_to_metric_families(self.get("/metrics"))
            for sample in family.samples
        )

    def verdicts(self) -> dict[str, str]:
        return {row["id"]: row["verdict"] for row in json.loads(self.get("/api/v1/sessions"))}

    def wait_for(self, condition: Any, what: str) -> None:
        try:
            wait_until(condition, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.docker.logs(self.name)}") from None

    def is_ready(self) -> bool:
        try:
            return self.get("/-/ready") != ""
        except OSError:
            return False

    def health(self) -> str:
        status = self.docker.inspect(self.name)["State"]["Health"]["Status"]
        assert isinstance(status, str)
        return status


@contextmanager
def contained(docker: Engine, folder: Path, home: Path, *options: str) -> Iterator[Contained]:
    """The image with `home` mounted, confined as much as its documentation says."""
    settings = folder / "settings.yml"
    settings.write_text(IMPATIENT)
    settings.chmod(0o644)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ["serve", f"--web.listen-address=127.0.0.1:{port}", "--config.file=/settings.yml"]
    mounts = ["--volume", f"{home}:/hermes", "--volume", f"{settings}:/settings.yml:ro"]
    where = ["--env", f"HEALTH_URL={url}/-/healthy"]
    with docker.container(IMAGE, [*CONFINED, *mounts, *where, *options], command) as name:
        agent = Contained(docker, name, url)
        agent.wait_for(agent.is_ready, "the agent in the container is ready")
        yield agent


@pytest.fixture(scope="module")
def docker() -> Iterator[Engine]:
    with engine() as running:
        import_base_image(running)
        running.build(IMAGE, "--build-arg", f"VERSION={__version__}")
        yield running


@pytest.fixture
def home() -> Iterator[Path]:
    """A home of a user whose number no passwd file knows, in a folder that user can reach."""
    with tempfile.TemporaryDirectory() as name:
        home = make_home(NEWEST, Path(name)).path
        subprocess.run(["chown", "--recursive", f"{OWNER}:{OWNER}", name], check=True)
        yield home


def owners(home: Path) -> set[int]:
    return {path.lstat().st_uid for path in (home, *home.rglob("*"))}


@pytest.mark.full
def test_it_serves_confined_and_says_that_it_is_blind(
    docker: Engine, home: Path, tmp_path: Path
) -> None:
    """Not root, nothing writable, no capability, 128 MB; only its own processes are in sight."""
    with contained(docker, tmp_path, home, "--user", f"{OWNER}:{OWNER}") as agent:
        metrics = agent.metrics()
        assert metrics.by("hermes_home_up", "home") == {("default",): 1}
        assert metrics.by("hermes_exporter_blind", "reason") == {("pid_namespace",): 1}
        assert "dead" not in agent.verdicts().values()
        agent.wait_for(lambda: agent.health() == "healthy", "the engine calls it healthy")
        state = agent.docker.inspect(agent.name)["State"]
        assert (state["Running"], state["OOMKilled"]) == (True, False)
        ids = agent.docker.docker("exec", agent.name, "id", "--user").strip()
        assert ids == str(OWNER)
        capabilities = agent.docker.docker("exec", agent.name, "grep", "CapBnd", "/proc/1/status")
        assert int(capabilities.split()[1], 16) == 0
    assert owners(home) == {OWNER}


@pytest.mark.full
def test_a_home_that_is_mounted_read_only_is_scanned_too(
    docker: Engine, home: Path, tmp_path: Path
) -> None:
    read_only = ("--volume", f"{home}:/readonly:ro", "--env", "HERMES_HOME=/readonly")
    with contained(docker, tmp_path, home, *read_only, "--user", f"{OWNER}:{OWNER}") as agent:
        assert agent.metrics().by("hermes_home_up", "home") == {("default",): 1}


@pytest.mark.full
@pytest.mark.parametrize("rights", [("--pid", "host", "--user", f"{OWNER}:{OWNER}"), ALL_SEEING])
def test_a_hermes_of_the_host_is_seen_and_its_session_spared(
    docker: Engine, home: Path, tmp_path: Path, rights: Sequence[str]
) -> None:
    """As the owner it sees that user's processes, and knows that there are others it cannot see.

    As root with five capabilities it sees them all, and what was left behind is dead.
    """
    hermes = python_for(NEWEST)
    everything = rights is ALL_SEEING
    session = "20260105_080000_abcdef"
    with (
        contained(docker, tmp_path, home, *rights) as agent,
        holder(hermes, home, ["chat", "--resume", session], user=OWNER) as chat,
    ):
        chat.ask("create", session=session)
        chat.ask("append", session=session)
        agent.wait_for(lambda: agent.verdicts().get(session) == "live", "its session is live")
        processes = agent.metrics().by("hermes_processes", "kind")
        assert processes["cli",] == 1
        blind = {reason for (reason,) in agent.metrics().by("hermes_exporter_blind", "reason")}
        assert blind == (set() if everything else {"permissions"})
        chat.kill()
        after = "dead" if everything else "unknown"
        agent.wait_for(lambda: agent.verdicts().get(session) == after, f"its session is {after}")
    assert owners(home) == {OWNER}


@pytest.mark.full
def test_what_it_writes_into_a_home_is_the_owners(
    docker: Engine, home: Path, tmp_path: Path
) -> None:
    """A reap by the root of a container: the journal in the home is not root's."""
    with contained(docker, tmp_path, home, *ALL_SEEING) as agent:
        agent.wait_for(lambda: "dead" in agent.verdicts().values(), "a session is dead")
        reap = ("exec", agent.name, "hermes-exporter", "reap", "--config.file=/settings.yml")
        docker.docker(*reap, "--yes")
        agent.wait_for(lambda: "dead" not in agent.verdicts().values(), "it is ended")
    assert (home / ".hermes-exporter").is_dir()
    assert owners(home) == {OWNER}


@pytest.mark.full
def test_the_image_says_what_it_is(docker: Engine) -> None:
    image = docker.inspect(IMAGE)
    labels = image["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "hermes-exporter"
    assert labels["org.opencontainers.image.version"] == __version__
    assert image["Config"]["User"] == "65532:65532"
    said = docker.docker("run", "--rm", "--network", "host", IMAGE, "--version")
    assert said == f"hermes-exporter {__version__}\n"
    git = docker.docker("run", "--rm", "--entrypoint", "git", IMAGE, "--version")
    assert git.startswith("git version")
