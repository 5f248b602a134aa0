"""What one command does without an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter import collectors
from exporter.agent.one_shot import metrics_text
from exporter.agent.options import Options
from exporter.collectors.registry import Collector, Samples
from exporter.collectors.view import HostView


def test_a_collector_that_raises_is_in_the_log_and_costs_only_its_own_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(view: HostView, samples: Samples) -> None:
        raise KeyError("a secret")

    broken = Collector("broken", "fails", (), fail)
    monkeypatch.setattr(collectors, "collectors", lambda: [broken])
    home = tmp_path / "home"
    home.mkdir()
    options = Options(config_file=None, homes=(str(home),), state_dir=str(tmp_path / "state"))
    text, _ = metrics_text(options)
    assert b'hermes_exporter_collector_success{collector="broken"} 0.0' in text
    (record,) = caplog.records
    fields = getattr(record, "fields", {})
    assert (record.message, fields["collector"]) == ("collector failed", "broken")
    assert fields["error"].startswith("KeyError in ")
    assert "secret" not in fields["error"]
