"""The demo's past leads to its present: the lines on the host page end where a scan finds it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.agent.state_store import StateStore
from exporter.agent.trends import KEPT_SECONDS, trends
from exporter.demo.home import make
from exporter.demo.state import write_settings, write_state
from tests.real.command import run, run_json


def test_the_last_point_is_near_what_a_scan_finds(tmp_path: Path) -> None:
    now = time.time()
    home = make(str(tmp_path), now=now)
    state = tmp_path / "state"
    before = {each: each.stat().st_mtime_ns for each in Path(home).glob("state.db*")}
    write_state(str(state), home, now=now)
    assert {each: each.stat().st_mtime_ns for each in Path(home).glob("state.db*")} == before
    store = StateStore.open(str(state))
    both = [(home, "default"), (f"{home}/profiles/work", "default/work")]
    lines = trends(store, both)["homes"]
    store.close()
    config = write_settings(str(tmp_path))
    found = run_json("status", "--home", home, "--state-dir", state, "--config.file", config)
    metrics = tmp_path / "hermes.prom"
    run("textfile", metrics, "--home", home, "--state-dir", state, "--config.file", config)
    counted: Counter[str] = Counter()
    for family in text_string_to_metric_families(metrics.read_text()):
        for sample in family.samples:
            if sample.name == "hermes_tokens_total":
                counted[sample.labels["home"]] += int(sample.value)
    for line, scanned in zip(lines, found["homes"], strict=True):
        assert line["home"] == scanned["home"]
        assert len(line["at"]) == KEPT_SECONDS // 3600
        assert now - 3 <= line["at"][-1] <= now
        assert line["open"][-1] == scanned["sessions"]["open"]
        assert line["dead"][-1] == pytest.approx(scanned["verdicts"]["dead"], abs=10)
        assert line["tokens"] == sorted(line["tokens"])
        assert line["tokens"][-1] == pytest.approx(counted[line["home"]])
        for kind, sizes in line["disk"].items():
            assert sizes[-1] == pytest.approx(scanned["disk"][kind], rel=0.1, abs=20_000), kind
            assert sizes == sorted(sizes)
