"""What an error tells: an exit status to scripts, and to the log a place without private text."""

from __future__ import annotations

import json

import pytest

from exporter.errors import (
    ConfigError,
    DatabaseError,
    ExporterError,
    HomeError,
    PartlyDoneError,
    RefusedError,
    StateError,
    UsageError,
    WorkerError,
    error_location,
)
from exporter.hermes.home_facts import has_plugin_folders
from exporter.snapshot import Trouble


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError, 2),
        (ConfigError, 2),
        (PartlyDoneError, 3),
        (StateError, 1),
        (HomeError, 1),
        (WorkerError, 1),
    ],
)
def test_every_error_has_the_exit_status_of_its_kind(
    error: type[ExporterError], status: int
) -> None:
    assert issubclass(error, ExporterError)
    assert error.exit_status == status


def test_a_home_that_fails_says_why() -> None:
    failed = DatabaseError(Trouble.BUSY, "state.db: locked")
    refused = RefusedError("another run is in progress", busy=True)
    assert (str(failed), failed.trouble) == ("state.db: locked", Trouble.BUSY)
    assert (str(refused), refused.busy) == ("another run is in progress", True)
    assert isinstance(failed, HomeError)
    assert isinstance(refused, HomeError)


def test_the_location_of_an_error_is_where_it_was_raised_and_tells_no_text() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("a secret")
    name, place = error_location(caught.value).split(" in ")
    assert name == "JSONDecodeError"
    assert place.startswith("decoder.py:")
    assert error_location(KeyError("a secret")) == "KeyError"


def test_the_location_of_an_error_is_in_our_code_also_if_a_library_raised_it() -> None:
    with pytest.raises(TypeError) as caught:
        has_plugin_folders(3)  # type: ignore[arg-type]
    assert error_location(caught.value).startswith("TypeError in hermes/home_facts.py:")
