"""Ending 2,900 dead sessions at once, against ending them one by one through SessionDB."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.homes import CACHE
from benchmarks.keeping import maintaining_hermes
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import alternate, timed
from exporter.reaper.reap import execute
from exporter.writing.connection import LOCK_BUDGET_SECONDS
from tests.support.reaping import planned
from tests.support.small_homes import small_home

_SESSIONS = 2_900


def run(setting: Setting) -> Iterator[Line]:
    CACHE.mkdir(parents=True, exist_ok=True)
    place = CACHE.resolve() / "reap"
    shutil.rmtree(place, ignore_errors=True)
    holds: list[float] = []
    try:
        source = small_home(place / "source", round(_SESSIONS * setting.scale))
        rounds = alternate(
            lambda: _ours(_copy(source, place), holds),
            lambda: _hermes(_copy(source, place)),
            setting.rounds,
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    yield ratio_line("reap 2,900 dead sessions", "one by one through SessionDB", rounds, 1 / 10)
    yield Line(
        "reap: longest hold of the write lock",
        achieved=max(holds) * 1e3,
        limit=LOCK_BUDGET_SECONDS * 1e3,
        unit="ms",
    )


def _copy(source: Path, place: Path) -> Path:
    shutil.rmtree(place / "home", ignore_errors=True)
    return shutil.copytree(source, place / "home")


def _ours(home: Path, holds: list[float]) -> float:
    plan, site = planned(home)
    if not plan.actions:
        raise RuntimeError("no session was found dead")
    outcomes = []
    seconds = timed(lambda: outcomes.append(execute(plan, site, end_reason="reaped")))
    holds.append(outcomes[0].longest_hold_seconds)
    if len(outcomes[0].done) != len(plan.actions):
        raise RuntimeError(f"not all were ended: {outcomes[0].why} {outcomes[0].skipped[:1]}")
    return seconds


def _hermes(home: Path) -> float:
    plan, _ = planned(home)
    with maintaining_hermes(home) as hermes:
        return float(hermes.ask("end", sessions=[action.target for action in plan.actions]))
