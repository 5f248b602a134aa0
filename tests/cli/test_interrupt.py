"""When a signal comes, and what the command does then."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from exporter.cli.interrupt import interruptible
from exporter.errors import InterruptedRunError


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {
        each: signal.signal(each, signal.default_int_handler)
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def test_during_a_run_the_first_signal_asks_and_the_second_ends() -> None:
    def act() -> None:
        with interruptible() as interrupts, interrupts.acting("") as cancellation:
            signal.raise_signal(signal.SIGTERM)
            assert cancellation.requested
            assert interrupts.exit_status == 128 + signal.SIGTERM
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(InterruptedRunError, match="ended at once"):
        act()


def test_after_a_run_the_report_is_printed_first() -> None:
    with interruptible() as interrupts, interrupts.acting(""):
        pass
    signal.raise_signal(signal.SIGINT)  # does nothing
    with pytest.raises(KeyboardInterrupt):  # only the second does not wait
        signal.raise_signal(signal.SIGINT)


def test_before_a_run_nothing_was_done() -> None:
    with pytest.raises(InterruptedRunError, match="nothing was done"), interruptible():
        signal.raise_signal(signal.SIGINT)
