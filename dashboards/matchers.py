"""Which series a panel reads: the variables of the dashboard, written once.

An expression has `<home>`, `<agent>` or `<job>` inside a selector's braces. It stands for the
matchers of the labels that the series has:

    sum(hermes_sessions_open{<home>})
    sum(rate(process_cpu_seconds_total{<agent>}[$__rate_interval]))
"""

from __future__ import annotations

JOB = 'job=~"$job"'
AGENT = f'{JOB}, instance=~"$instance"'
HOME = f'{AGENT}, home=~"$home"'

_PLACES = {"<job>": JOB, "<agent>": AGENT, "<home>": HOME}


def matched(expression: str) -> str:
    """Return the expression on one line, with the matchers filled in."""
    text = " ".join(expression.split())
    for place, matchers in _PLACES.items():
        text = text.replace(place, matchers)
    return text
