"""The Fleet dashboard on 1,000 hosts through the recording rules, against the same without them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.fleet import fleet, questions
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import alternate, timed

_HOSTS = 1000


def run(setting: Setting) -> Iterator[Line]:
    folded = questions()
    raw = [question.without_rules for question in folded]
    with fleet(int(_HOSTS * setting.scale)) as asked:
        rounds = alternate(
            lambda: timed(lambda: [asked.ask(question) for question in folded]),
            lambda: timed(lambda: [asked.ask(question) for question in raw]),
            setting.rounds,
        )
    note = f"{len(folded)} queries, {int(_HOSTS * setting.scale)} hosts"
    yield ratio_line(
        "fleet dashboard", "the same panels without recording rules", rounds, 0.1, note
    )
