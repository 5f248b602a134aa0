"""Only what looks like something Hermes writes becomes a label value."""

from __future__ import annotations

import pytest

from exporter.collectors.labels import LabelFamily, label_value


@pytest.mark.parametrize("source", ["cli", "telegram", "api_server", "wecom-callback", "x1"])
def test_sources_that_hermes_writes_are_shown(source: str) -> None:
    assert label_value(LabelFamily.SOURCE, source) == source


@pytest.mark.parametrize("reason", ["cli_close", "reaped", "resume_pending_expired", "idle"])
def test_end_reasons_that_hermes_writes_are_shown(reason: str) -> None:
    assert label_value(LabelFamily.END_REASON, reason) == reason


@pytest.mark.parametrize(
    "model",
    ["hermes-4-405b", "vendor/model-x-4.5", "gpt-9:beta", "nousresearch/hermes-4@fp8", "m"],
)
def test_models_are_shown(model: str) -> None:
    assert label_value(LabelFamily.SOURCE_MODEL, model) == model


@pytest.mark.parametrize(
    ("family", "value"),
    [
        (LabelFamily.SOURCE, "Ada Lovelace"),
        (LabelFamily.SOURCE, "/home/ada/secret"),
        (LabelFamily.SOURCE, "x" * 33),
        (LabelFamily.END_REASON, "user ada@example.org asked"),
        (LabelFamily.END_REASON, "token_sk-12345"),
        (LabelFamily.SOURCE_MODEL, "sk-proj-0123456789abcdef"),
        (LabelFamily.SOURCE_MODEL, "model with spaces"),
        (LabelFamily.SOURCE_MODEL, "a" * 100),
        (LabelFamily.SOURCE_MODEL, "0123456789abcdef0123456789abcdef"),
        (LabelFamily.SOURCE, "cli\nhermes_home_up 0"),
        (LabelFamily.SOURCE, "čli"),
    ],
)
def test_anything_else_is_other(family: LabelFamily, value: str) -> None:
    assert label_value(family, value) == "other"


def test_nothing_is_none() -> None:
    assert label_value(LabelFamily.END_REASON, "") == "none"


def test_the_longest_value_of_every_shape_is_shown() -> None:
    longest = "_".join(["abcdefghijklmnopqrstuvwx"] * 5)
    for family in (LabelFamily.END_REASON, LabelFamily.SOURCE_END_REASON):
        assert label_value(family, longest) == longest
        assert label_value(family, f"{longest}_") == "other"
    model = "model/" * 13 + "ab"
    assert label_value(LabelFamily.SOURCE_MODEL, model) == model
    assert label_value(LabelFamily.SOURCE_MODEL, f"{model}c") == "other"
