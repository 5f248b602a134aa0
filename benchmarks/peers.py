"""What a user has today for the same jobs."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import timed

CACHE = Path(__file__).parents[1] / ".cache"


class MissingPeerError(Exception):
    """A program that a benchmark compares with is not on this machine."""


def program(name: str, package: str) -> str:
    """Return the path of a program; if it is missing, raise an error that says how to get it."""
    found = shutil.which(name)
    if found is None:
        raise MissingPeerError(f"{name} is not installed; run: apt-get install {package}")
    return found


def du(path: Path) -> float:
    """Return the seconds that `du -sb` takes for a folder."""
    command = [program("du", "coreutils"), "-sb", str(path)]
    return timed(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))


def sqlite(database: Path, questions: str) -> float:
    """Return the seconds that the sqlite3 program takes to answer, read-only."""
    command = [program("sqlite3", "sqlite3"), "-readonly", str(database), questions]
    return timed(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))


def environment(package: str) -> Path:
    """Return the folder with the programs of a PyPI package, installed separately from ours."""
    return _environment(package, [package])


def ours() -> Path:
    """Return a Python with our code and its dependencies, as users have it.

    Every Python loads development packages if it finds them, and they cost memory. Our code is
    compiled, as pip and the Debian package do; otherwise every start may compile it anew.
    """
    needed = CACHE.parent / "deploy" / "requirements.txt"
    programs = _environment(f"hermes-exporter-{_digest(needed)}", ["--requirement", str(needed)])
    python = programs / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    Path(found.stdout.strip(), "hermes_exporter.pth").write_text(f"{CACHE.parent}\n")
    subprocess.run([python, "-m", "compileall", "-q", CACHE.parent / "exporter"], check=True)
    return python


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:8]


def _environment(name: str, wanted: list[str]) -> Path:
    folder = CACHE / "peers" / name
    done = folder / ".installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted]
        subprocess.run(pip, check=True)
        done.touch()
    return folder / "bin"


_GAUGES = {
    "open": "SELECT source, '' AS by, count(*) AS open FROM sessions"
    " WHERE ended_at IS NULL GROUP BY 1",
    "ended": "SELECT source, end_reason AS by, count(*) AS ended FROM sessions"
    " WHERE ended_at IS NOT NULL GROUP BY 1, 2",
    "calls": "SELECT source, '' AS by, sum(tool_call_count) AS calls FROM sessions GROUP BY 1",
    "tokens": "SELECT s.source, u.model AS by, sum(u.input_tokens) AS tokens"
    " FROM session_model_usage AS u JOIN sessions AS s ON s.id = u.session_id GROUP BY 1, 2",
    "lengths": "SELECT source, min(message_count / 10, 20) AS by, count(*) AS lengths"
    " FROM sessions GROUP BY 1, 2",
}
"""What a user who wants our figures would configure in query-exporter."""


@contextmanager
def query_exporter(database: Path) -> Iterator[int]:
    """Let query-exporter poll this database every second; yield its PID."""
    config = {
        "databases": {"state": {"dsn": f"sqlite:///{database}"}},
        "metrics": {name: {"type": "gauge", "labels": ["source", "by"]} for name in _GAUGES},
        "queries": {
            name: {"databases": ["state"], "metrics": [name], "interval": 1, "sql": sql}
            for name, sql in _GAUGES.items()
        },
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(config, file)
        file.flush()
        command = [str(environment("query-exporter") / "query-exporter"), "--config", file.name]
        subprocess.run([*command, "--check-only"], stdout=subprocess.DEVNULL, check=True)
        with subprocess.Popen(
            [*command, "--port", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield process.pid
            finally:
                process.terminate()


ONE_PASS = (
    "SELECT source, count(*), sum(ended_at IS NULL), sum(message_count), max(started_at)"
    " FROM sessions GROUP BY source"
)
"""One pass over every session: the least that any poll of this database costs."""

ALL_FIGURES = """
SELECT source, count(*) FROM sessions WHERE ended_at IS NULL GROUP BY source;
SELECT source, end_reason, count(*) FROM sessions WHERE ended_at IS NOT NULL GROUP BY 1, 2;
SELECT source, sum(tool_call_count), sum(api_call_count) FROM sessions GROUP BY source;
SELECT s.source, u.model, sum(u.input_tokens), sum(u.output_tokens), sum(u.cache_read_tokens),
  sum(u.cache_write_tokens), sum(u.reasoning_tokens), sum(u.estimated_cost_usd)
  FROM session_model_usage AS u JOIN sessions AS s ON s.id = u.session_id GROUP BY 1, 2;
SELECT s.source, min(n / 10, 100), count(*) FROM sessions AS s LEFT JOIN
  (SELECT session_id, count(*) AS n FROM messages WHERE active GROUP BY session_id) AS m
  ON m.session_id = s.id GROUP BY 1, 2;
SELECT s.id, s.source, s.started_at, max(m.timestamp) FROM sessions AS s
  LEFT JOIN messages AS m ON m.session_id = s.id WHERE s.ended_at IS NULL GROUP BY s.id;
"""
"""The figures of one of our full passes, each with its own query."""
