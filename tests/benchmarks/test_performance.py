"""The page on performance says what was measured, and nothing else."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import figures, performance
from benchmarks.figures import Figures, Machine, Measured
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import Timings


def measured(*lines: Line) -> Measured:
    return Measured("2026-01-02", 5, Machine(2, "6.1", "3.11.7", 0.5), list(lines))


def first_pass(seconds: float) -> Figures:
    rounds = Timings([seconds, 2 * seconds], [2 * seconds, 2 * seconds])
    line = ratio_line("database, first full pass", "sqlite3", rounds, 0.4)
    return {"database_first": measured(line)}


def test_the_page_is_what_its_figures_say() -> None:
    """`make bench` writes both; `python -m benchmarks.performance` only the page."""
    kept = {scale: figures.load(scale) for scale in (0.1, 1.0, 10.0)}
    assert performance.PAGE.read_text() == performance.page(kept)
    images = performance.PAGE.parent / "images"
    for name, drawn in performance.plots(kept).items():
        assert (images / name).read_text() == drawn


def test_a_missed_target_is_marked_with_its_spread() -> None:
    text = performance.page({0.1: {}, 1.0: first_pass(0.5), 10.0: {}})
    assert "| ≤ 0.4 | 0.75 | 0.5 to 1 | **missed** |" in text
    assert "the first pass over a state.db of 960 MB: 750 ms" in text
    assert "images/" not in text, "one scale is no growth"


def test_two_scales_are_drawn() -> None:
    kept = {0.1: first_pass(0.05), 1.0: first_pass(0.5), 10.0: {}}
    drawn = performance.plots(kept)["growth-first-readings.svg"]
    picture = ET.fromstring(drawn)
    assert len(picture.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    assert "(images/growth-first-readings.svg)" in performance.page(kept)


def test_a_failure_replaces_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    met = Line("memory", 60.0, 72.0, unit="MiB")
    figures.keep({"memory": [met], "series": [met]}, Setting())
    figures.keep({"memory": [Line("memory", 0, 0, error="no such program")]}, Setting())
    figures.keep({"series": [Line("series", 1.0, 2.0)]}, Setting())
    kept = figures.load(1.0)
    assert kept["memory"].lines == [met]
    assert kept["series"].lines == [Line("series", 1.0, 2.0)]
    assert figures.load(10.0) == {}
