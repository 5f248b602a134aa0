"""The clocks of this boot."""

from __future__ import annotations

import psutil

from exporter.evidence.liveness import Clock, read_boot_id, read_clock
from tests.support.evidence import puppet

CLOCK = Clock(wall=1_000_000.0, since_boot=500.0, ticks_per_second=100)


def test_start_ticks_become_a_time_of_day() -> None:
    assert CLOCK.epoch(start_ticks=20_000) == 1_000_000.0 - 500.0 + 200.0


def test_the_start_time_of_a_real_process_equals_that_of_psutil() -> None:
    with puppet() as process:
        ours = read_clock().epoch(process.stat().start_ticks)
        assert abs(ours - psutil.Process(process.pid).create_time()) < 2.0


def test_a_clock_that_was_set_is_detected_and_a_running_one_is_not() -> None:
    later = Clock(wall=1_003_600.0, since_boot=4_100.0, ticks_per_second=100)
    set_back = Clock(wall=999_000.0, since_boot=501.0, ticks_per_second=100)
    assert later.boot_began_at == CLOCK.boot_began_at
    assert set_back.boot_began_at == CLOCK.boot_began_at - 1_001.0


def test_the_boot_id_does_not_change() -> None:
    assert read_boot_id() is not None
    assert read_boot_id() == read_boot_id()


def test_without_a_proc_there_is_no_boot_id() -> None:
    assert read_boot_id("/nonexistent") is None
