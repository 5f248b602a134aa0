"""What a collector may declare."""

from __future__ import annotations

import pytest

from exporter import collectors
from exporter.collectors.registry import Label, Samples, collector, gauge, registered
from exporter.collectors.view import HostView

THING = gauge("hermes_thing", "A thing.", "home", Label("colour", ("red", "blue")))


def nothing(view: HostView, samples: Samples) -> None:
    """Collects nothing."""


def test_a_label_says_what_it_can_be() -> None:
    assert THING.labels == ("home", "colour")
    assert THING.values_of("colour") == ("red", "blue")
    with pytest.raises(KeyError, match=r"hermes_thing.*home"):
        THING.values_of("home")


def test_a_label_without_its_values_is_refused_where_it_is_declared() -> None:
    """The series budget could not be computed, and would fail far from the mistake."""
    with pytest.raises(ValueError, match=r"hermes_thing: the label colour .*Label\('colour'"):
        gauge("hermes_thing", "A thing.", "home", "colour")
    assert gauge("hermes_thing", "A thing.", "home", "version", at_most=1).at_most == 1


def test_a_second_collector_of_a_name_is_refused() -> None:
    """It would hide the first without a word."""
    before = collectors.collectors()
    taken = collectors.collectors()[0].name
    with pytest.raises(ValueError, match=f"two collectors of the name {taken}"):
        collector(taken, "things", THING)(nothing)
    assert registered() == before


def test_a_collector_counts_only_files_below_a_home() -> None:
    with pytest.raises(ValueError, match="below a home"):
        collector("things", "things", THING, file_patterns=["../*"])
    assert "things" not in {each.name for each in collectors.collectors()}
