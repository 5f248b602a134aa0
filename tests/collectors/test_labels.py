"""Only what looks like something Hermes writes becomes a label value."""

from __future__ import annotations

import pytest

from exporter.collectors.labels import Family, fit


@pytest.mark.parametrize("source", ["cli", "telegram", "api_server", "wecom-callback", "x1"])
def test_sources_that_hermes_writes_are_shown(source: str) -> None:
    assert fit(Family.SOURCE, source) == source


@pytest.mark.parametrize("reason", ["cli_close", "reaped", "resume_pending_expired", "idle"])
def test_end_reasons_that_hermes_writes_are_shown(reason: str) -> None:
    assert fit(Family.END_REASON, reason) == reason


@pytest.mark.parametrize(
    "model",
    ["hermes-4-405b", "vendor/model-x-4.5", "gpt-9:beta", "nousresearch/hermes-4@fp8", "m"],
)
def test_models_are_shown(model: str) -> None:
    assert fit(Family.SOURCE_MODEL, model) == model


@pytest.mark.parametrize(
    ("family", "value"),
    [
        (Family.SOURCE, "Ada Lovelace"),
        (Family.SOURCE, "/home/ada/secret"),
        (Family.SOURCE, "x" * 33),
        (Family.END_REASON, "user ada@example.org asked"),
        (Family.END_REASON, "token_sk-12345"),
        (Family.SOURCE_MODEL, "sk-proj-0123456789abcdef"),
        (Family.SOURCE_MODEL, "model with spaces"),
        (Family.SOURCE_MODEL, "a" * 100),
        (Family.SOURCE_MODEL, "0123456789abcdef0123456789abcdef"),
        (Family.SOURCE, "cli\nhermes_home_up 0"),
        (Family.SOURCE, "čli"),
    ],
)
def test_anything_else_is_other(family: Family, value: str) -> None:
    assert fit(family, value) == "other"


def test_nothing_is_none() -> None:
    assert fit(Family.END_REASON, "") == "none"
