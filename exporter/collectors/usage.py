"""Messages, calls, tokens and cost, as counters that never fall.

hermes_tokens_total{home="default",source="cli",model="hermes-4",kind="input"} 1.8e+06
hermes_cost_usd_total{home="default",source="cli",model="hermes-4",status="estimated"} 12.7

They start at the sum found when the home was first seen, and continue across prunes and restarts.
"""

from __future__ import annotations

from exporter.collectors.registry import Label, Samples, collector, counter
from exporter.collectors.view import HostView

MESSAGES = counter("hermes_messages_total", "Messages written.", "home", "source")
TOOL_CALLS = counter("hermes_tool_calls_total", "Tool calls made.", "home", "source")
API_CALLS = counter("hermes_api_calls_total", "Calls to a model's API.", "home", "source")
TOKENS = counter(
    "hermes_tokens_total",
    "Tokens used.",
    "home",
    "source",
    "model",
    Label("kind", ("input", "output", "cache_read", "cache_write", "reasoning")),
)
COST = counter(
    "hermes_cost_usd_total",
    "Cost in US dollars as Hermes reckons it; what it could not price is not in it.",
    "home",
    "source",
    "model",
    Label("status", ("estimated", "actual")),
)
_BY_SOURCE = {"messages": MESSAGES, "tool_calls": TOOL_CALLS, "api_calls": API_CALLS}
_BY_MODEL = {"tokens": TOKENS, "cost_usd": COST}


@collector(
    "usage", "messages, calls, tokens and cost", MESSAGES, TOOL_CALLS, API_CALLS, TOKENS, COST
)
def collect(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        for each in home.counters:
            if each.name in _BY_SOURCE:
                samples.add(_BY_SOURCE[each.name], each.value, home.label, each.source)
            elif each.name in _BY_MODEL:
                metric = _BY_MODEL[each.name]
                samples.add(metric, each.value, home.label, each.source, each.model, each.kind)
