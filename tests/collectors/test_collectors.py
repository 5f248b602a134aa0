"""Each collector stands alone, and no home can make more series than its share."""

from __future__ import annotations

import string
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter import collectors
from exporter.collectors.series_budget import series_of
from exporter.demo.home import make
from tests.real.agent import agent
from tests.real.command import run
from tests.support.fabricate.database import (
    MessageRow,
    SessionRow,
    StateDatabase,
    UsageRow,
)
from tests.support.running_agent import configuration

HOME_SERIES, AGENT_SERIES = 600, 60


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(make(str(tmp_path_factory.mktemp("demo")), now=time.time()))


def names(folder: Path, home: Path, *flags: str) -> set[str]:
    """The metrics that are left with these flags."""
    file = folder / "hermes.prom"
    config = folder / "quick.yml"
    config.write_text("reaper: {confirmations: 1}\n")
    where: list[str | Path] = ["--home", home, "--state-dir", folder / "state"]
    done = run("textfile", file, *flags, "--config.file", config, *where)
    assert done.returncode == 0, done.stderr
    families = parse_text(file.read_text())
    return {family.name for family in families if not family.name.startswith("process_")}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory, home: Path) -> set[str]:
    return names(tmp_path_factory.mktemp("everything"), home)


@pytest.mark.parametrize("name", [each.name for each in collectors.collectors()])
def test_each_collector_can_be_switched_off(
    name: str, everything: set[str], home: Path, tmp_path: Path
) -> None:
    """Only its own metrics are missing then."""
    (off,) = (each for each in collectors.collectors() if each.name == name)
    gone = {metric.name.removesuffix("_total") for metric in off.descriptions}
    assert names(tmp_path, home, f"--no-collector.{name}") == everything - gone


def test_the_demo_shows_nearly_every_metric(everything: set[str]) -> None:
    """Without this the test above would prove little."""
    declared = {
        metric.name.removesuffix("_total")
        for each in collectors.collectors()
        for metric in each.descriptions
    }
    assert declared - everything <= {
        "hermes_agent_info",
        "hermes_gateway_start_time_seconds",
        "hermes_exporter_blind",
        "hermes_prune_blocked",
        "hermes_prune_last_run_timestamp_seconds",
        "hermes_prune_unreachable_bytes",
        "hermes_sessions_written_after_end",
        "hermes_state_db_integrity_ok",
    }, (
        "the demo home does not show it: is a pattern missing in `file_patterns`? "
        "If the demo cannot have it, add it to this list"
    )


def test_no_label_has_a_value_that_was_not_declared(home: Path, tmp_path: Path) -> None:
    """Nor has a metric more series of a home than the budget counts for it."""
    names(tmp_path, home)
    samples: dict[str, list[dict[str, str]]] = {}
    for family in parse_text((tmp_path / "hermes.prom").read_text()):
        for sample in family.samples:
            name = sample.name.removesuffix("_bucket")
            samples.setdefault(name, []).append(dict(sample.labels))
    for metric in (metric for each in collectors.collectors() for metric in each.descriptions):
        found = samples.get(metric.name, [])
        for label in metric.bounded:
            assert {labels[label.name] for labels in found} <= set(label.values), metric.name
        of_home = Counter(labels.get("home") for labels in found)
        assert all(count <= series_of(metric) for count in of_home.values()), metric.name


def words(count: int) -> Iterator[str]:
    return ("".join(pair) for pair in islice(product(string.ascii_lowercase, repeat=2), count))


def test_a_home_with_very_many_words_stays_within_its_share(tmp_path: Path) -> None:
    """Forty sources, each with forty end reasons and forty models, open and ended."""
    home = Path(make(str(tmp_path), now=time.time()))
    (home / "state.db").unlink()
    moment = time.time() - 3600
    with StateDatabase(str(home / "state.db")) as database:
        for source in words(40):
            for number, word in enumerate(words(40)):
                name = f"20260101_{number:06}_{source}"
                said = MessageRow(name, "user", "hi", moment)
                used = UsageRow(name, f"model-{word}", 1, 2, 3, 4, 5, 6, 0.5, 0.5, moment, moment)
                ended = moment - 60 if number % 2 else None
                row = SessionRow(
                    *(name, f"source{source}", moment - 120, ended),
                    end_reason=f"reason_{word}" if ended else None,
                    model=f"model-{word}",
                )
                database.add_session(row, [said], [used])
    with agent(tmp_path, configuration=configuration({"wordy": home})) as running:
        metrics = running.metrics()
        series = [dict(labels).get("home") for name, labels in metrics]
        assert series.count("wordy") <= HOME_SERIES
        assert series.count("wordy/work") <= HOME_SERIES
        agent_only = [
            name
            for name, labels in metrics
            if "home" not in dict(labels) and not name.startswith(("process_", "python_"))
        ]
        assert len(agent_only) <= AGENT_SERIES
        assert metrics.value("hermes_exporter_series") == len(metrics)
        assert sum(metrics.by("hermes_sessions_open", "source", home="wordy").values()) == 800
        ended_now = metrics.by("hermes_sessions_ended", "source", "end_reason", home="wordy")
        assert sum(ended_now.values()) == 800
        assert ended_now["other", "other"] > 0
        tokens = metrics.by("hermes_tokens_total", "source", "model", "kind", home="wordy")
        assert sum(tokens.values()) == 1600 * 20
