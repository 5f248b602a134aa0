"""The daily clean-up: once in the night, at a minute of the host's own, and only where it is on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from exporter.agent.clean_up_time import is_clean_up_due, minute_of, next_clean_up
from exporter.config.mode import When
from exporter.config.prune import Caps, Keep, Prune, Threshold, Thresholds
from exporter.pruner.decide.plan import plan_prune
from exporter.pruner.decide.protection import protect
from exporter.pruner.models import PruneMemory
from tests.support.prune_plans import inventory, pressed, session

HOST = "build-7"
HOUR = 3600.0


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield str(request.param)
    monkeypatch.undo()
    time.tzset()


def at(hour: int, minute: int = 0, day: int = 10) -> float:
    return time.mktime((2026, 6, day, hour, minute, 0, 0, 0, -1))


@pytest.mark.usefixtures("zone")
def test_it_is_due_once_between_the_hosts_minute_and_five() -> None:
    begins = at(3) + 60 * minute_of(HOST)
    assert at(3) <= begins < at(5) - 9 * 60
    assert not is_clean_up_due(begins - 1, None, HOST)
    assert is_clean_up_due(begins, None, HOST)
    assert is_clean_up_due(at(4, 59), None, HOST)
    for other in (at(0), at(5), at(12), at(23, 59)):
        assert not is_clean_up_due(other, None, HOST)
    assert not is_clean_up_due(at(4, 59), begins + 30, HOST), "it was done"
    assert is_clean_up_due(begins, begins - 24 * HOUR + 60, HOST), "that was yesterday's"
    assert is_clean_up_due(begins, begins + 24 * HOUR, HOST), "the clock was set back"


@pytest.mark.usefixtures("zone")
def test_the_next_one_is_tonight_or_tomorrow() -> None:
    begins = at(3) + 60 * minute_of(HOST)
    assert next_clean_up(at(1), HOST) == begins
    assert next_clean_up(begins, HOST) == begins + 24 * HOUR
    assert next_clean_up(at(20), HOST) == begins + 24 * HOUR


def test_hosts_of_a_fleet_are_spread_over_the_time() -> None:
    minutes = [minute_of(f"host-{number}.example.org") for number in range(1000)]
    assert min(minutes) < 5
    assert 105 <= max(minutes) < 110
    assert max(minutes.count(minute) for minute in set(minutes)) < 30
    assert minute_of("host-1") == minute_of("host-1")


def settings(*when: When, **changes: object) -> Prune:
    marks = Thresholds(empty_sessions=Threshold(1, 0))
    return Prune(when=when, keep=Keep(newest=0), thresholds=marks, **changes)  # type: ignore[arg-type]


def automatic(how: Prune, *, by_age: bool) -> list[str]:
    home = inventory(*(session(f"s{n}", days=200 - n) for n in range(9)), session("e", rows=0))
    home = inventory(*home.sessions, session("e2", rows=0, days=3))
    pressure = pressed(home, how, PruneMemory())
    protection = protect(home, how)
    made = plan_prune("home", home, protection, how, pressure=pressure, by_age=by_age)
    return [each.target for each in made.actions]


def test_with_age_everything_past_its_policy_goes_within_the_caps() -> None:
    both = (When.PRESSURE, When.AGE)
    assert automatic(settings(*both), by_age=False) == ["e", "e2"]
    everything = automatic(settings(*both, caps=Caps(share=1.0)), by_age=True)
    assert sorted(everything) == ["e", "e2", *(f"s{n}" for n in range(9))]
    assert automatic(settings(*both, caps=Caps(items=4)), by_age=True) == ["e", "e2", "s0", "s1"]


def test_by_age_alone_no_threshold_starts_a_run() -> None:
    assert automatic(settings(When.AGE), by_age=False) == []
