"""The Fleet dashboard on 1,000 hosts through the recording rules, against the same without them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fleet import Fleet, Group, PanelQuery, fleet, groups, panel_queries
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import Timings, alternate, timed

_HOSTS = 1000
_MANY_HOSTS = 10_000
_PEER = "the same panels without recording rules"


def run(setting: Setting) -> Iterator[Line]:
    hosts = int(_HOSTS * setting.scale)
    folded = panel_queries()
    raw = [question.without_rules for question in folded]
    with fleet(hosts) as asked:
        looks = alternate(
            lambda: timed(lambda: [asked.ask(question) for question in folded]),
            lambda: timed(lambda: [asked.ask(question) for question in raw]),
            setting.rounds,
        )
        evaluations = [timed(lambda: _evaluate(asked, *groups())) for _ in range(setting.rounds)]
        shares = {group.name: recording_share(asked, group, setting.rounds) for group in groups()}
    note = f"{len(folded)} queries, {hosts} hosts"
    yield ratio_line("fleet dashboard, one look", _PEER, looks, 0.1, note)
    # The cost of recording, even if no user opens the dashboard: every rule once, as in a minute.
    rules = sum(len(group.rules) for group in groups())
    recording = Timings(evaluations, looks.peer)
    yield ratio_line("recording rules, once", _PEER, recording, 0.5, f"{rules} rules")
    yield share_line(shares, hosts)


def recording_share(asked: Fleet, group: Group, rounds: int) -> float:
    """Return the server's processor time for one evaluation, as a share of the interval.

    MeasuredSizes by the query interface at one moment; without the cost of writing the results.
    """
    _evaluate(asked, group)
    before = asked.cpu_seconds()
    for _ in range(rounds):
        _evaluate(asked, group)
    return (asked.cpu_seconds() - before) / rounds / group.interval_seconds


def share_line(shares: dict[str, float], hosts: int) -> Line:
    """Return a line for groups that run in parallel: their sum is the use of a core, and each must
    finish in time.
    """
    more = _MANY_HOSTS / hosts
    slowest = max(shares, key=lambda name: shares[name])
    return Line(
        f"recording rules of {hosts:,} hosts",
        achieved=sum(shares.values()),
        limit=0.1 * hosts / _HOSTS,
        unit="of a core",
        note=f"{_MANY_HOSTS:,} hosts: {sum(shares.values()) * more:.2g} of a core, "
        f"{slowest} {shares[slowest] * more:.2g} of its interval",
    )


def _evaluate(asked: Fleet, *chosen: Group) -> None:
    for group in chosen:
        for name, rule in group.rules.items():
            asked.ask(PanelQuery(name, f"count({rule})", instant=True))
