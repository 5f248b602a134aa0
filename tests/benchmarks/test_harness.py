"""The harness says what was aimed at and what came out, whatever happens to one benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import load, registry, report, servers
from benchmarks.compare import Run, disagreements
from benchmarks.line import Line, Setting, Verdict, ratio_line
from benchmarks.measure import Timings, alternate, percentile


def test_a_ratio_is_the_median_over_rounds() -> None:
    assert Timings([1.0, 2.0, 30.0], [10.0, 10.0, 10.0]).ratio == pytest.approx(0.2)


def test_rounds_alternate_and_the_first_is_not_counted() -> None:
    order: list[str] = []

    def job(name: str, seconds: float) -> float:
        order.append(name)
        return seconds

    rounds = alternate(lambda: job("ours", 1.0), lambda: job("peer", 2.0), 2)
    assert order == ["ours", "peer"] * 3
    assert rounds == Timings([1.0, 1.0], [2.0, 2.0])


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(100)]
    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 0.99) == 99.0
    assert percentile([7.0], 0.99) == 7.0


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (Line("job", achieved=1.0, limit=1.0), Verdict.MET),
        (Line("job", achieved=1.1, limit=1.0), Verdict.MISSED),
        (Line("job", achieved=1.1, limit=1.0, at_least=True), Verdict.MET),
        (Line("job", achieved=0.0, limit=1.0, error="no such program"), Verdict.FAILED),
    ],
)
def test_a_line_is_judged_by_its_limit(line: Line, verdict: Verdict) -> None:
    assert line.verdict is verdict


def test_a_benchmark_that_breaks_is_a_line_of_the_report() -> None:
    (line,) = registry.run("no_such_benchmark", Setting())
    assert line.verdict is Verdict.FAILED
    assert "no_such_benchmark" in line.error


def test_every_benchmark_says_what_it_measures() -> None:
    for name in registry.names():
        assert registry.purpose(name).endswith("."), name


def test_the_report_has_every_figure(tmp_path: Path) -> None:
    rounds = Timings([1.0], [4.0])
    results = {"disk": [ratio_line("a job", "du", rounds, 0.5)]}
    place = report.save(results, Setting(), tmp_path / "new" / "figures.json")
    (saved,) = json.loads(place.read_bytes())["results"]["disk"]
    assert (saved["achieved"], saved["limit"], saved["verdict"]) == (0.25, 0.5, "met")
    assert saved["rounds"] == {"ours": [1.0], "peer": [4.0]}
    console = Console(record=True, width=160)
    report.show(results, console)
    assert "a job" in console.export_text()


@pytest.mark.parametrize("kind", ["ours", "peer"])
def test_load_is_answered_by_either_server(kind: str) -> None:
    """One keeps connections, the other hangs up after each answer."""
    with servers.serving(kind) as port:
        met = load.scrape(port, clients=2, seconds=2.0)
    assert len(met.latencies) > 2
    assert all(latency > 0 for latency in met.latencies)


def test_clients_that_have_a_pace_ask_no_more_often() -> None:
    with servers.serving("ours") as port:
        met = load.Load([], 0.0)
        while not met.latencies:  # a busy machine takes its time
            met = load.scrape(port, clients=2, seconds=0.3, every_seconds=0.1)
            assert len(met.latencies) <= 2 * 4


def test_two_runs_agree_within_the_spread_of_their_rounds() -> None:
    def run(*ratios: float, mebibytes: float) -> Run:
        rounds = Timings(list(ratios), [1.0] * len(ratios))
        memory = Line("memory", achieved=mebibytes, limit=100.0, unit="MiB")
        return Run({"case": [ratio_line("job", "peer", rounds, 1.0), memory]})

    first = run(0.4, 0.5, 0.6, mebibytes=70.0)
    assert not list(disagreements(first, run(0.5, 0.6, 0.7, mebibytes=72.0)))
    apart = list(disagreements(first, run(0.8, 0.9, 1.0, mebibytes=90.0)))
    assert len(apart) == 2
    assert "0.5 and 0.9 differ by more than 0.2" in apart[0]
    assert list(disagreements(first, Run({}))) == [
        "case: job: not measured in both runs",
        "case: memory: not measured in both runs",
    ]
