"""The rendered metrics are what Prometheus, promtool and the client library read."""

from __future__ import annotations

import gzip
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    StateSetMetricFamily,
    SummaryMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.collectors.exposition import GaugeHistogram, Rendered, render
from exporter.snapshot import IDLE_BUCKETS, MESSAGE_BUCKETS


def messages_histogram() -> GaugeHistogram:
    family = GaugeHistogram(
        "hermes_session_messages", "Messages per session.", (1, 5), ["home", "source"]
    )
    family.add(["default", "cli"], [3, 4, 2], 40)
    return family


def sample_families() -> list[Metric]:
    gauge = GaugeMetricFamily("hermes_disk_bytes", "Bytes on disk.", labels=["home", "kind"])
    gauge.add_metric(["default", "logs"], 4096)
    counter = CounterMetricFamily("hermes_messages", "Messages ever seen.", labels=["home"])
    counter.add_metric(["default"], 12345678)
    idle = GaugeHistogram("hermes_session_open_idle_seconds", "Idle time.", IDLE_BUCKETS, ["home"])
    idle.add(["default"], [1] * 9, 1.5e7)
    build = InfoMetricFamily("hermes_exporter_build", "Version.", {"version": "0.1.0"})
    return [gauge, counter, messages_histogram(), idle, build]


def read_text(rendered: Rendered) -> dict[str, Metric]:
    parsed = parse_text(rendered.text.decode())
    return {family.name: family for family in parsed}


def read_openmetrics(rendered: Rendered) -> dict[str, Metric]:
    parsed = parse_openmetrics(rendered.openmetrics.decode())  # type: ignore[no-untyped-call]
    return {family.name: family for family in parsed}


def collected(families: list[Metric]) -> CollectorRegistry:
    class Fixed:
        def collect(self) -> list[Metric]:
            return families

    registry = CollectorRegistry()
    registry.register(Fixed())
    return registry


def test_a_gauge_histogram_is_a_histogram_in_text() -> None:
    assert render([messages_histogram()]).text.decode() == (
        "# HELP hermes_session_messages Messages per session.\n"
        "# TYPE hermes_session_messages histogram\n"
        'hermes_session_messages_bucket{home="default",le="1.0",source="cli"} 3.0\n'
        'hermes_session_messages_bucket{home="default",le="5.0",source="cli"} 7.0\n'
        'hermes_session_messages_bucket{home="default",le="+Inf",source="cli"} 9.0\n'
        'hermes_session_messages_count{home="default",source="cli"} 9.0\n'
        'hermes_session_messages_sum{home="default",source="cli"} 40.0\n'
    )


def test_a_gauge_histogram_keeps_its_type_in_openmetrics() -> None:
    assert render([messages_histogram()]).openmetrics.decode() == (
        "# HELP hermes_session_messages Messages per session.\n"
        "# TYPE hermes_session_messages gaugehistogram\n"
        'hermes_session_messages_bucket{home="default",le="1.0",source="cli"} 3.0\n'
        'hermes_session_messages_bucket{home="default",le="5.0",source="cli"} 7.0\n'
        'hermes_session_messages_bucket{home="default",le="+Inf",source="cli"} 9.0\n'
        'hermes_session_messages_gcount{home="default",source="cli"} 9.0\n'
        'hermes_session_messages_gsum{home="default",source="cli"} 40.0\n'
        "# EOF\n"
    )


@pytest.mark.parametrize("counts", [[1, 2], [1, 2, 3, 4]])
def test_counts_that_do_not_fit_the_buckets_are_an_error(counts: list[int]) -> None:
    family = GaugeHistogram("hermes_x", "X.", (1, 5))
    with pytest.raises(ValueError, match="zip"):
        family.add([], counts, 0)


def test_promtool_has_nothing_to_say() -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=render(sample_families()).text,
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_the_client_librarys_parsers_read_both_forms() -> None:
    rendered = render(sample_families())
    text, modern = read_text(rendered), read_openmetrics(rendered)
    assert text["hermes_session_messages"].type == "histogram"
    assert modern["hermes_session_messages"].type == "gaugehistogram"
    assert text["hermes_messages"].samples[0].value == 12345678
    assert modern["hermes_messages"].samples[0].name == "hermes_messages_total"


def test_the_buckets_of_the_snapshot_parse_in_openmetrics() -> None:
    """The parser refuses an `le` that is not in canonical form, such as 2592000 for 2.592e+06."""
    for bounds in (MESSAGE_BUCKETS, IDLE_BUCKETS):
        family = GaugeHistogram("hermes_x", "X.", bounds)
        family.add([], [1] * (len(bounds) + 1), 1)
        read = read_openmetrics(render([family]))["hermes_x"]
        shown = [float(sample.labels["le"]) for sample in read.samples if "le" in sample.labels]
        assert shown == [*bounds, float("inf")]


def test_creation_times_are_left_out() -> None:
    registry = CollectorRegistry()
    Counter("hermes_x", "X.", registry=registry).inc()
    rendered = render(registry.collect())
    assert b"hermes_x_total 1.0\n" in rendered.text
    assert b"_created" not in rendered.text + rendered.openmetrics


@given(
    documentation=st.text(st.characters(exclude_categories=["Cs"])),
    value=st.floats(min_value=0),
    label=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_whatever_the_text_the_client_library_renders_the_same(
    documentation: str, value: float, label: str
) -> None:
    families: list[Metric] = []
    for kind in (GaugeMetricFamily, CounterMetricFamily, UnknownMetricFamily):
        family = kind(f"hermes_{kind.__name__.lower()}", documentation, labels=["b", "a"])
        family.add_metric([label, "x"], value)
        families.append(family)
    summary = SummaryMetricFamily("hermes_s", documentation, labels=["a"])
    summary.add_metric([label], 2, value)
    states = StateSetMetricFamily("hermes_states", documentation, {"on": True})
    families += [summary, states, InfoMetricFamily("hermes_i", documentation, {"a": label})]
    rendered = render(families)
    assert rendered.text == generate_latest(collected(families))
    modern = generate_openmetrics(collected(families))  # type: ignore[no-untyped-call]
    assert rendered.openmetrics == modern


def test_the_compressed_forms_hold_the_same() -> None:
    rendered = render(sample_families())
    assert gzip.decompress(rendered.text_gzip) == rendered.text
    assert gzip.decompress(rendered.openmetrics_gzip) == rendered.openmetrics
    assert rendered.body(openmetrics=True, compressed=True) is rendered.openmetrics_gzip
    assert rendered.body(openmetrics=False, compressed=True) is rendered.text_gzip
    assert rendered.body(openmetrics=True, compressed=False) is rendered.openmetrics
    assert rendered.body(openmetrics=False, compressed=False) is rendered.text


def test_a_label_that_is_not_utf8_does_not_cost_the_scrape() -> None:
    gauge = GaugeMetricFamily("hermes_home_up", "Up.", labels=["home"])
    gauge.add_metric(["caf\udce9"], 1)
    assert b'hermes_home_up{home="caf?"} 1.0\n' in render([gauge]).text


def test_no_families_render_to_an_empty_exposition() -> None:
    rendered = render([])
    assert rendered == Rendered(b"", b"# EOF\n", rendered.text_gzip, rendered.openmetrics_gzip)
