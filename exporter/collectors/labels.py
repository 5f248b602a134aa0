"""Which texts of a home may become label values: few, short, and nothing private.

Sources, end reasons and models are free text in Hermes: a client may put anything there. A value
that does not look like what Hermes itself writes is shown as `other`. So is every new value of a
home that has used up its number of values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct

from exporter.snapshot import OTHER

NONE: Final = "none"
"""Stands for an empty value: an ended session without an end reason, a session without a model."""


class LabelFamily(StrEnum):
    """The kinds of label values that come from a home."""

    SOURCE = "source"
    HISTOGRAM_SOURCE = "histogram_source"
    """The source label of a histogram, where each value costs a series per bucket."""
    SOURCE_END_REASON = "source-end_reason"
    SOURCE_MODEL = "source-model"
    END_REASON = "end_reason"


LIMITS: Final[Mapping[LabelFamily, int]] = {
    LabelFamily.SOURCE: 7,
    LabelFamily.HISTOGRAM_SOURCE: 3,
    LabelFamily.SOURCE_END_REASON: 13,
    LabelFamily.SOURCE_MODEL: 6,
    LabelFamily.END_REASON: 4,
}
"""Values shown per home, `other` not counted. What they cost is computed in
`exporter.collectors.series_budget`."""

_CORE_SOURCES: Final = frozenset({"cli", "tui", "cron", "subagent"})
"""Sources whose sessions leak. When more values are new than places free, these come first."""

_SHAPES: Final[Mapping[LabelFamily, re.Pattern[str]]] = {
    LabelFamily.SOURCE: re.compile(r"[a-z][a-z0-9_-]{0,31}"),
    LabelFamily.HISTOGRAM_SOURCE: re.compile(r"[a-z][a-z0-9_-]{0,31}"),
    LabelFamily.SOURCE_END_REASON: re.compile(r"[a-z]{1,24}(_[a-z]{1,24}){0,4}"),
    LabelFamily.SOURCE_MODEL: re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,79}"),
    LabelFamily.END_REASON: re.compile(r"[a-z]{1,24}(_[a-z]{1,24}){0,4}"),
}
_LONGEST: Final = 124
"""Characters of the longest value that has one of these shapes."""
_REMEMBERED: Final = 512
_SECRET: Final = re.compile(
    r"(?i)(^|[^a-z])(sk|pk|ghp|gho|xox[a-z]|key|token|bearer)[-_]|[A-Za-z0-9+]{32,}"
)


def label_value(family: LabelFamily, value: str) -> str:
    """The value if it may be shown, `none` if there is none, `other` otherwise."""
    if len(value) > _LONGEST:
        return OTHER  # no shape allows it, and it is not to be remembered
    return _label_value(family, value)


@lru_cache(_REMEMBERED)
def _label_value(family: LabelFamily, value: str) -> str:
    if not value:
        return NONE
    if _SHAPES[family].fullmatch(value) and not _SECRET.search(value):
        return value
    return OTHER


def most_used_first(weights: Mapping[tuple[str, ...], float]) -> list[tuple[str, ...]]:
    """Values in the order in which they get a place: core sources first, then the heaviest."""
    return sorted(
        weights, key=lambda value: (value[0] not in _CORE_SOURCES, -weights[value], value)
    )


class AllowedValues(Struct, frozen=True):
    """The label values of one family that a home shows; every other value is `other`."""

    allowed: frozenset[tuple[str, ...]]

    def __call__(self, *value: str) -> tuple[str, ...]:
        """The value as it is shown: itself, or `other` for each of its parts."""
        if value in self.allowed:
            return value
        return tuple(OTHER for _ in value)
