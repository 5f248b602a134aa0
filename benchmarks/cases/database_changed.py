"""A poll of state.db after 100 new messages in 50 sessions, against one pass over its sessions.

A poll reads recently active open sessions again, so what other benchmarks wrote would count: it has
a home of its own, and writes into a copy of that.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import hermes, homes, peers, reading
from benchmarks.homes import Part
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import alternate, timed

_MESSAGES = 100
_SESSIONS = 50
_OWN_HOME = 2
"""The seed of a home that no other benchmark uses."""


def run(setting: Setting) -> Iterator[Line]:
    source = homes.home(setting.scale, Part.DATABASE, seed=_OWN_HOME)
    with homes.copied(source, Part.DATABASE) as home, hermes.holding(home) as writer:
        reader = reading.first_pass(home)

        def poll_after_writes() -> float:
            writer.append(_MESSAGES, _SESSIONS)
            return timed(lambda: reading.poll(reader))

        rounds = alternate(
            poll_after_writes,
            lambda: peers.sqlite(home / Part.DATABASE, peers.ONE_PASS),
            setting.rounds,
        )
    yield ratio_line("database, 100 new messages", "sqlite3, one pass", rounds, 0.05)
