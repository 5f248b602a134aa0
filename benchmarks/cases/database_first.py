"""The first full pass over state.db, against the sqlite3 program asked for the same figures."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import hermes, homes, peers, reading
from benchmarks.homes import Part
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import alternate, timed


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale, Part.DATABASE)
    with hermes.holding(home):
        rounds = alternate(
            lambda: timed(lambda: reading.first_pass(home)),
            lambda: peers.sqlite(home / Part.DATABASE, peers.ALL_FIGURES),
            setting.rounds,
        )
    yield ratio_line("database, first full pass", "sqlite3, GROUP BYs", rounds, 0.4)
