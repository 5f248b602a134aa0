"""A poll of state.db after which nothing was written, against one pass over its sessions."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import hermes, homes, peers, reading
from benchmarks.homes import Part
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import alternate, mean_of


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale, Part.DATABASE)
    with hermes.holding(home):
        reader = reading.first_pass(home)
        rounds = alternate(
            lambda: mean_of(lambda: reading.poll(reader), reading.IDLE_POLLS),
            lambda: peers.sqlite(home / Part.DATABASE, peers.ONE_PASS),
            setting.rounds,
        )
    yield ratio_line("database, nothing changed", "sqlite3, one pass", rounds, 0.02)
