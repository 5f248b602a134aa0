"""The benchmark of the Fleet dashboard compares questions that have the same answer."""

from __future__ import annotations

import re

import pytest

from benchmarks.fleet import expanded, fleet, panel_queries


def test_without_rules_nothing_recorded_is_read() -> None:
    asked = panel_queries()
    assert len(asked) > 20
    for question in asked:
        assert ":" in question.expression, question.panel
        assert not re.search(r"(home|job|instance):", expanded(question.expression)), question.panel


@pytest.mark.full
@pytest.mark.xdist_group("prometheus")
def test_both_forms_of_a_question_have_the_same_series_for_an_answer() -> None:
    with fleet(4) as asked:
        for question in panel_queries():
            labels = [series["metric"] for series in asked.ask(question)]
            raw = [series["metric"] for series in asked.ask(question.without_rules)]
            assert sorted(map(str, labels)) == sorted(map(str, raw)), question
