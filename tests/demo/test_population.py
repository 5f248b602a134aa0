"""A fabricated home has the field's shape."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from exporter.demo.conversation import Prose, tell
from exporter.demo.population import ORIGINS, message_counts, outlines
from tests.support.fabricate.field import FIELD, field_shape

NOW = 1_750_000_000.0


@pytest.mark.parametrize("scale", [0.04, 0.1, 1])
def test_counts_are_exactly_those_of_the_picture(scale: float) -> None:
    shape = field_shape(scale)
    counts = message_counts(shape, Random(1))
    assert len(counts) == shape.sessions
    assert sum(counts) == shape.messages
    assert counts.count(0) == shape.empty
    assert sum(count <= 5 for count in counts) == shape.short
    assert sum(count > 100 for count in counts) == shape.long
    assert max(counts) == shape.longest


def test_an_impossible_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        message_counts(FIELD._replace(messages=5), Random(1))


def test_the_newest_session_of_each_chat_is_open_and_no_other_of_it() -> None:
    shape = field_shape(0.1)
    made = outlines(shape, now=NOW, days=30, rng=Random(1))
    assert sum(outline.end_reason is None for outline in made) == shape.open
    newest = {outline.chat: outline.id for outline in made if outline.chat}
    assert newest
    for outline in made:
        if outline.chat:
            assert (outline.end_reason is None) == (newest[outline.chat] == outline.id)


def test_sessions_are_in_order_of_time_from_every_source_with_unique_ids() -> None:
    made = outlines(field_shape(0.1), now=NOW, days=30, rng=Random(1))
    assert [outline.started_at for outline in made] == sorted(o.started_at for o in made)
    assert all(NOW - 31 * 86400 < o.started_at <= o.last_at <= NOW for o in made)
    assert len({outline.id for outline in made}) == len(made)
    assert {outline.source for outline in made} == {origin.source for origin in ORIGINS}


def test_the_same_seed_tells_the_same_stories() -> None:
    def stories(seed: int) -> list[object]:
        rng = Random(seed)
        prose = Prose(rng, vocabulary=50, length=5_000)
        made = outlines(field_shape(0.01), now=NOW, days=30, rng=rng)
        return [tell(o, prose=prose, rng=rng, message_size=50, prompt_size=90) for o in made]

    assert stories(1) == stories(1)
    assert stories(1) != stories(2)


def test_rows_agree_with_their_session() -> None:
    rng = Random(1)
    prose = Prose(rng, vocabulary=50, length=5_000)
    for outline in outlines(field_shape(0.05), now=NOW, days=30, rng=rng):
        story = tell(outline, prose=prose, rng=rng, message_size=50, prompt_size=90)
        roles = Counter(message["role"] for message in story.messages)
        assert story.session["message_count"] == len(story.messages) == outline.messages
        assert story.session.get("api_call_count", 0) == roles["assistant"]
        assert all(m["timestamp"] <= outline.last_at + 1e-3 for m in story.messages)
        assert bool(story.usage) == bool(story.messages)
        if outline.end_reason and outline.messages > 1:
            assert story.messages[-1]["finish_reason"] == "stop"
