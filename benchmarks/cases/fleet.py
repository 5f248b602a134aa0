"""The Fleet dashboard on 1,000 hosts through the recording rules, against the same without them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fleet import Question, fleet, questions, recorded
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import Rounds, alternate, timed

_HOSTS = 1000
_PEER = "the same panels without recording rules"


def run(setting: Setting) -> Iterator[Line]:
    hosts = int(_HOSTS * setting.scale)
    folded = questions()
    raw = [question.without_rules for question in folded]
    rules = [Question(name, f"count({rule})", instant=True) for name, rule in recorded().items()]
    with fleet(hosts) as asked:
        looks = alternate(
            lambda: timed(lambda: [asked.ask(question) for question in folded]),
            lambda: timed(lambda: [asked.ask(question) for question in raw]),
            setting.rounds,
        )
        evaluations = [
            timed(lambda: [asked.ask(rule) for rule in rules]) for _ in range(setting.rounds)
        ]
    note = f"{len(folded)} queries, {hosts} hosts"
    yield ratio_line("fleet dashboard, one look", _PEER, looks, 0.1, note)
    # What it costs to record, whoever looks: every rule once, which is what a minute takes.
    recording = Rounds(evaluations, looks.peer)
    yield ratio_line("recording rules, once", _PEER, recording, 0.5, f"{len(rules)} rules")
