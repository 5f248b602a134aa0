"""Metric families as the bytes of a scrape, made once per scan.

The client library could render each scrape, but it writes a gauge histogram in the text format as
three unrelated metrics, and rendering on every request is what makes a scrape slow. Timestamps and
exemplars are not written, because no metric of this exporter has them.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import cast

from msgspec import Struct
from prometheus_client import Metric
from prometheus_client.utils import floatToGoString

_GZIP_LEVEL = 1
"""A fifth more bytes than level 6 makes, in a quarter of the time; it is paid twice per scan."""
_REMEMBERED = 2048
"""Texts of labels and numbers kept for the next scan: most series are the same then."""

# Suffix and type that the text format has instead of a type of OpenMetrics.
_TEXT_TYPES = {
    "counter": ("_total", "counter"),
    "info": ("_info", "gauge"),
    "stateset": ("", "gauge"),
    "gaugehistogram": ("", "histogram"),
    "unknown": ("", "untyped"),
}
_TEXT_SUFFIXES = {"_gsum": "_sum", "_gcount": "_count"}


class Rendered(Struct, frozen=True):
    """One scan's metrics in every form that a scraper may ask for."""

    text: bytes
    openmetrics: bytes
    text_gzip: bytes
    openmetrics_gzip: bytes

    def body(self, *, openmetrics: bool, compressed: bool) -> bytes:
        """The bytes of one form."""
        if openmetrics:
            return self.openmetrics_gzip if compressed else self.openmetrics
        return self.text_gzip if compressed else self.text


class RenderedFamily(Struct, frozen=True):
    """One metric with all its series, as bytes: a fraction of the memory of a `Metric`."""

    name: str
    text: bytes
    openmetrics: bytes
    series: int


class GaugeHistogram(Metric):
    """How values are spread now; its buckets may fall, unlike those of a histogram.

    hermes_session_messages_bucket{home="default",source="cli",le="5.0"} 61
    """

    def __init__(
        self, name: str, documentation: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        super().__init__(name, documentation, "gaugehistogram")
        self._bounds = [_number(bound) for bound in (*bounds, float("inf"))]
        self._labels = tuple(labels)

    def add(self, labels: Sequence[str], counts: Sequence[int], total: float) -> None:
        """Add one series; `counts` has the values in each bucket, the last beyond every bound."""
        named = dict(zip(self._labels, labels, strict=True))
        cumulative = list(accumulate(counts))
        for bound, count in zip(self._bounds, cumulative, strict=True):
            self.add_sample(f"{self.name}_bucket", {**named, "le": bound}, count)
        self.add_sample(f"{self.name}_gcount", named, cumulative[-1])
        self.add_sample(f"{self.name}_gsum", named, total)


def render(families: Iterable[Metric]) -> Rendered:
    """Render families in the order given; no two may have the same name."""
    return join(map(render_family, families))


def render_family(family: Metric) -> RenderedFamily:
    text: list[str] = []
    openmetrics: list[str] = []
    _write_headers(family, text, openmetrics)
    series = _write_samples(family, text, openmetrics)
    return RenderedFamily(family.name, _encode(text), _encode(openmetrics), series)


def join(families: Iterable[RenderedFamily]) -> Rendered:
    """Return a whole scrape; no two families may have the same name."""
    found = list(families)
    plain = b"".join(each.text for each in found)
    modern = b"".join((*(each.openmetrics for each in found), b"# EOF\n"))
    return Rendered(plain, modern, _compress(plain), _compress(modern))


def _write_headers(family: Metric, text: list[str], openmetrics: list[str]) -> None:
    name = family.name
    suffix, text_type = _TEXT_TYPES.get(family.type, ("", family.type))
    help_text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    text.append(f"# HELP {name}{suffix} {help_text}\n# TYPE {name}{suffix} {text_type}\n")
    quoted = help_text.replace('"', r"\"")
    openmetrics.append(f"# HELP {name} {quoted}\n# TYPE {name} {family.type}\n")
    if family.unit:
        openmetrics.append(f"# UNIT {name} {family.unit}\n")


def _write_samples(family: Metric, text: list[str], openmetrics: list[str]) -> int:
    """Write a line for each series; return how many there are."""
    prefix, series = len(family.name), 0
    for sample in family.samples:
        suffix = sample.name[prefix:]
        if suffix == "_created":
            continue
        rest = f"{_labels(tuple(sample.labels.items()))} {_number(sample.value)}\n"
        openmetrics.append(sample.name + rest)
        text.append(family.name + _TEXT_SUFFIXES.get(suffix, suffix) + rest)
        series += 1
    return series


@lru_cache(_REMEMBERED)
def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escape(value)}"' for name, value in sorted(labels))
    return f"{{{','.join(pairs)}}}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@lru_cache(_REMEMBERED)
def _number(value: float) -> str:
    return cast(str, floatToGoString(value))  # type: ignore[no-untyped-call]


def _encode(lines: list[str]) -> bytes:
    # A label made from a file name may not be UTF-8; that must not cost the whole scrape.
    return "".join(lines).encode("utf-8", "replace")


def _compress(data: bytes) -> bytes:
    return gzip.compress(data, _GZIP_LEVEL, mtime=0)
