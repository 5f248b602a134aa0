"""Events, drawn over the panels that show their effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders.dashboard import AnnotationPanelFilter, AnnotationQuery

from dashboards.matchers import matched
from dashboards.panels import DATASOURCE


@dataclass(frozen=True, slots=True)
class Annotation:
    """Marks at the moments that an expression returns."""

    name: str
    expression: str
    text: str
    colour: str
    sections: frozenset[str]
    """The headings of the sections whose panels show it; in others it would only disturb."""
    values_are_moments: bool = False
    """True if the values are the moments, in milliseconds; otherwise it lasts while there is a
    result.
    """


def query(annotation: Annotation, panels: Sequence[int]) -> AnnotationQuery:
    """Return the annotation as a Grafana query, for the panels with these ids."""
    asked = (
        AnnotationQuery()
        .name(annotation.name)
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(annotation.colour)
        .filter(AnnotationPanelFilter().exclude(False).ids(list(panels)))
        .expr(matched(annotation.expression))
        .step("60s")
        .title_format(annotation.name)
        .text_format(annotation.text)
        .tag_keys("home")
    )
    return asked.use_value_for_time(True) if annotation.values_are_moments else asked
