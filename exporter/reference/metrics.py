"""docs/metrics.md, written from what the collectors declare; run it with `make docs`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from exporter import collectors
from exporter.collectors.labels import LIMITS, LabelFamily
from exporter.collectors.registry import COLLECTOR_DURATION, COLLECTOR_SUCCESS, Description, Label
from exporter.collectors.render import SERIES
from exporter.collectors.series_budget import SERIES_PER_HOME, worst_case

_VALUES_IN_TABLE = 8

_INTRODUCTION = """\
<!-- Written by `make docs` from the collectors; a test fails when it lags. -->
# Metrics

Each metric has the label `home` unless it describes the agent. Units are base units. A metric is
absent if its subject does not exist: a home without a gateway has no `hermes_gateway_up`.

`home` is `default` for the agent's own home, and the user's name for a home of another user. A
profile adds `/NAME`, and digits of a hash are added where two labels would be the same.
`homes[].name` of the configuration wins. A label is kept in the state directory and stays the same.

Gauge histograms show the distribution of values now, so their buckets may fall. In the text format
they have the type `histogram` with `_bucket`, `_sum` and `_count`; in OpenMetrics `gaugehistogram`
with `_bucket`, `_gsum` and `_gcount`. In rules and panels use only `_bucket`, and never `rate()`.

Counters start at the sum found at the first scan of a home. They never fall, whatever is pruned,
and are kept in the state directory. Copies by compaction and items that an undo restores are not
counted again.
"""


def page() -> str:
    return "".join(_page())


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    yield _limits()
    yield from _long_lists()
    for each in collectors.collectors():
        yield f"\n## {each.name}\n\n{each.about[0].upper()}{each.about[1:]}. "
        yield f"Switched off by `--no-collector.{each.name}`.\n\n"
        yield from _table(each.descriptions)
    yield "\n## Always there\n\nAbout the collectors themselves, in addition to the client "
    yield "library's `process_*` and `python_*` metrics.\n\n"
    yield from _table((COLLECTOR_SUCCESS, COLLECTOR_DURATION, SERIES))


def _declared() -> Iterator[Description]:
    return (metric for each in collectors.collectors() for metric in each.descriptions)


def _limits() -> str:
    worst = worst_case(_declared())
    return f"""
Label values from a home are limited and safe to show: at most {LIMITS[LabelFamily.SOURCE] + 1} \
sources
({LIMITS[LabelFamily.HISTOGRAM_SOURCE] + 1} in `hermes_session_messages`), \
{LIMITS[LabelFamily.SOURCE_END_REASON] + 1} pairs of source and end reason and
{LIMITS[LabelFamily.SOURCE_MODEL] + 1} pairs of source and model per home, `other` included. \
The first
values stay for good. Later values, and values that do not look like Hermes's own, become `other`;
in a pair both parts do. `none` stands for an empty value.

A cost that Hermes both estimated and was told is in `hermes_cost_usd_total` under both values of
`status`: choose one, do not add them. In `hermes_tokens_total`, tokens read from a cache are
separate (`cache_read`); Hermes's `reasoning` tokens are also part of `output`.

Files of no known kind are `other`, so a new leak is visible. A home has at most {SERIES_PER_HOME}
series: {worst} if it has everything at once.
"""


def _table(descriptions: tuple[Description, ...]) -> Iterator[str]:
    yield "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n"
    for each in descriptions:
        labels = ", ".join(_label(each, label) for label in each.labels)
        yield f"| `{each.name}` | {each.kind.value} | {labels} | {each.help} |\n"


def _label(metric: Description, label: str) -> str:
    """The label, with all that it can be where that is a short list."""
    try:
        values = metric.values_of(label)
    except KeyError:
        return f"`{label}`"
    if len(values) > _VALUES_IN_TABLE:
        return f"`{label}`"
    return f"`{label}` ({', '.join(values)})"


def _long_lists() -> Iterator[str]:
    """The values that do not fit into a table."""
    yield "\nValues of labels that are too many for the tables:\n\n"
    metrics: dict[Label, list[str]] = {}
    for metric in _declared():
        for label in metric.bounded:
            metrics.setdefault(label, []).append(f"`{metric.name}`")
    for label, names in metrics.items():
        if len(label.values) > _VALUES_IN_TABLE:
            yield f"- `{label.name}` of {', '.join(names)}: {', '.join(label.values)}\n"


if __name__ == "__main__":
    sys.stdout.write(page())
