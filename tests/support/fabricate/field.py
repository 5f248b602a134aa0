"""The shape of a home in the field, at any scale."""

from __future__ import annotations

from exporter.demo.population import Shape

FIELD = Shape(
    sessions=10_000,
    empty=3_564,
    short=6_730,
    long=170,
    longest=1_643,
    messages=242_000,
    open=2_900,
)


def field_shape(scale: float) -> Shape:
    """Return the same shape for more or fewer sessions; the longest one keeps its length."""
    grown = {name: round(value * scale) for name, value in FIELD._asdict().items()}
    return Shape(**grown | {"longest": FIELD.longest})
