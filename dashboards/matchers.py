"""Which series a panel asks for: the variables of the dashboard, written once.

An expression says `<home>`, `<agent>` or `<job>` inside a selector's braces where the labels that
the series has are to be matched:

    sum(hermes_sessions_open{<home>})
    sum(rate(process_cpu_seconds_total{<agent>}[$__rate_interval]))
"""

from __future__ import annotations

JOB = 'job=~"$job"'
AGENT = f'{JOB}, instance=~"$instance"'
HOME = f'{AGENT}, home=~"$home"'

_PLACES = {"<job>": JOB, "<agent>": AGENT, "<home>": HOME}


def matched(expression: str) -> str:
    """The expression on one line, with the matchers in their places."""
    text = " ".join(expression.split())
    for place, matchers in _PLACES.items():
        text = text.replace(place, matchers)
    return text
