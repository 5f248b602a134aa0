"""A scraper gets the form it asks for."""

from __future__ import annotations

import pytest

from exporter.web.negotiation import PLAIN, accepts_gzip, choose_form

TEXT_0_0_4 = "text/plain; version=0.0.4; charset=utf-8"
TEXT_1_0_0 = "text/plain; version=1.0.0; charset=utf-8; escaping="
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROTOBUF_FIRST = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;"
    "q=0.7," + PROMETHEUS_3
)
TEXT_FIRST = "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", TEXT_0_0_4),
        ("*/*", TEXT_0_0_4),
        ("text/html,application/xhtml+xml,*/*;q=0.8", TEXT_0_0_4),
        ("text/plain", TEXT_0_0_4),
        ("text/plain;version=0.0.4;q=1,*/*;q=0.1", TEXT_0_0_4),
        ("text/plain; version=1.0.0", TEXT_1_0_0 + "underscores"),
        ("text/plain; version=1.0.0; escaping=dots", TEXT_1_0_0 + "dots"),
        ("application/openmetrics-text", OPENMETRICS),
        ("APPLICATION/OpenMetrics-Text", OPENMETRICS),
        ("*/*, application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1", TEXT_0_0_4),
        ("application/openmetrics-text;version=9.0.0", TEXT_0_0_4),
        ("application/openmetrics-text;q=0", TEXT_0_0_4),
        ("application/openmetrics-text;q=", TEXT_0_0_4),
        ("application/json", TEXT_0_0_4),
        (";;;=,,q=;", TEXT_0_0_4),
        (PROMETHEUS_2_42, OPENMETRICS + "; escaping=underscores"),
        (PROMETHEUS_3, OPENMETRICS + "; escaping=allow-utf-8"),
        (PROTOBUF_FIRST, OPENMETRICS + "; escaping=allow-utf-8"),
        (TEXT_FIRST, TEXT_0_0_4),
    ],
)
def test_the_most_wanted_form_is_chosen(accept: str, content_type: str) -> None:
    form = choose_form(accept)
    assert form.content_type == content_type
    assert form.openmetrics == content_type.startswith("application/openmetrics-text")


def test_an_unknown_escaping_is_never_echoed() -> None:
    form = choose_form("text/plain;version=1.0.0;escaping=x\x0b")
    assert form.content_type == TEXT_1_0_0 + "underscores"


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("identity", False),
        ("xgzip", False),
    ],
)
def test_gzip_only_for_who_can_read_it(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


def test_the_default_is_the_text_format_every_scraper_reads() -> None:
    assert PLAIN.content_type == TEXT_0_0_4
