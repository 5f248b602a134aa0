"""The rules do what they say: Prometheus's own unit tests of each alert, with all its words."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from dashboards.alerts import reference
from tests.dashboards.alert_cases import CASES, Case, Quiet
from tests.dashboards.promtool import RULE_FILES, RULES, Expected, Series, UnitTest, check
from tests.real.hermes import REPOSITORY

MINUTE = 60


def groups(file: Path) -> list[dict[str, object]]:
    document: dict[str, list[dict[str, object]]] = yaml.safe_load(file.read_text())
    return document["groups"]


def alerts() -> list[str]:
    rules = [rule for group in groups(RULES / "alerts.yaml") for rule in group["rules"]]  # type: ignore[attr-defined]
    return [rule["alert"] for rule in rules]


def name(case: Case) -> str:
    nth = [each for each in CASES if each.alert == case.alert].index(case)
    return f"{case.alert}-{nth + 1}" if nth else case.alert


def fires(case: Case, series: Series) -> UnitTest:
    """Pending until just before its time, then firing with all labels and annotations.

    Whether a range takes in its first moment differs between versions of Prometheus: so two steps.
    """
    labels = {**case.labels, "severity": case.severity}
    return UnitTest(
        series,
        case.step * MINUTE,
        (
            Expected(case.alert, (case.first - 2 * case.step) * MINUTE),
            Expected(case.alert, case.first * MINUTE, [(labels, case.annotations)]),
        ),
    )


def stays_quiet(case: Case, quiet: Quiet) -> UnitTest:
    length = max(len(values) for values in quiet.series.values()) * case.step
    moments = range(quiet.since, length, max(case.step, length // 50 // case.step * case.step))
    return UnitTest(
        quiet.series,
        case.step * MINUTE,
        [Expected(case.alert, minute * MINUTE) for minute in moments],
    )


def with_a_failed_scrape(case: Case) -> Series:
    """The same series, but a scrape failed just before the alert fires."""
    missed = (case.first - 2 * case.step) // case.step
    return {
        series: [*values[:missed], "stale", *values[missed + 1 :]]
        for series, values in case.series.items()
    }


@pytest.mark.parametrize("case", CASES, ids=name)
def test_an_alert_fires_in_time_and_not_before(case: Case, tmp_path: Path) -> None:
    tests = [fires(case, case.series)]
    if case.scraped:
        tests.append(fires(case, with_a_failed_scrape(case)))
    tests += [stays_quiet(case, quiet) for quiet in case.quiet]
    complaint = check(tmp_path, tests, case.alert)
    assert not complaint, complaint


def test_every_alert_is_tested() -> None:
    assert Counter({case.alert: 1 for case in CASES}) == Counter(alerts())


def test_promtool_finds_no_fault_with_the_rules() -> None:
    command = ["promtool", "check", "rules", "--lint=all", "--lint-fatal", *map(str, RULE_FILES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_holds_for_a_while_and_has_a_severity() -> None:
    for group in groups(RULES / "alerts.yaml"):
        for rule in group["rules"]:  # type: ignore[attr-defined]
            assert rule["for"] != "0s", rule["alert"]
            assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
            assert "{{" not in rule["annotations"]["summary"], rule["alert"]


def generated(*words: str) -> str:
    command = [sys.executable, "-m", "dashboards.alerts", *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=REPOSITORY
    ).stdout


def test_the_file_is_what_the_alerts_say() -> None:
    """`make docs` writes it."""
    assert (RULES / "alerts.yaml").read_text() == generated()


def test_the_page_of_alerts_is_up_to_date() -> None:
    """`make docs` writes it too."""
    assert (REPOSITORY / "docs" / "alerts.md").read_text() == reference.page()


def test_links_begin_as_configured(tmp_path: Path) -> None:
    file = tmp_path / "hermes-exporter.yml"
    file.write_text(
        "alerts: {runbook_base: 'https://runbooks.example/hermes/', "
        "dashboard_base: 'https://grafana.example'}\n"
    )
    rules = yaml.safe_load(generated("--config.file", str(file)))
    annotations = rules["groups"][1]["rules"][0]["annotations"]
    assert annotations["runbook_url"] == ("https://runbooks.example/hermes/HermesHomeUnreadable.md")
    assert annotations["dashboard_url"].startswith("https://grafana.example/d/hermes-host?var-job=")


def test_an_alert_about_an_agent_that_is_down_does_not_link_to_it() -> None:
    """Whatever asks for `up` or for what is absent may be about an agent that cannot answer."""
    rules = [rule for group in yaml.safe_load(generated())["groups"] for rule in group["rules"]]
    links = {
        rule["alert"]: rule["annotations"]["runbook_url"]
        for rule in rules
        if re.search(r"(?<![\w:])up\b|\babsent", rule["expr"])
    }
    assert {"HermesAgentDown", "HermesAgentAbsent"} <= links.keys()
    for name, link in links.items():
        assert "http://{{ $labels.instance" not in link, name
        assert "instance!=%q" in link  # another one, which answers


def test_the_page_tells_how_to_set_links_without_a_checkout(tmp_path: Path) -> None:
    page = reference.page()
    settings, edit = re.search(
        r"```yaml\n(.*?)```.*?^```sh\n(base=.*?)```", page, re.S | re.M
    ).groups()  # type: ignore[union-attr]
    (tmp_path / "hermes-exporter.yml").write_text(settings)
    rules = tmp_path / "alerts.yaml"
    rules.write_text((RULES / "alerts.yaml").read_text())
    subprocess.run(["sh", "-c", edit], cwd=tmp_path, check=True)
    assert rules.read_text() == generated("--config.file", str(tmp_path / "hermes-exporter.yml"))


def test_a_configuration_with_an_error_is_named(tmp_path: Path) -> None:
    file = tmp_path / "hermes-exporter.yml"
    file.write_text("alerts: {runbook: x}\n")
    done = subprocess.run(
        [sys.executable, "-m", "dashboards.alerts", "--config.file", str(file)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{file}:1: ")
    assert "Traceback" not in done.stderr
