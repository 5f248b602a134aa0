"""The rules for a child of an ended session, one by one, in the order in which they decide."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from exporter.hermes import continuations
from exporter.hermes.continuations import SUMMARY_PREFIXES, Head, Relation, classify
from tests.support.small_homes import small_home

BY_AGENT = {"max_tokens": None}
PROMPT = "You are helpful.\nConversation started: Monday\nBe brief."
PARENT = Head(
    source="cli",
    title="A plan",
    system_prompt=PROMPT,
    model_config=BY_AGENT,
    started_at=1.0,
    end_reason="reaped",
    messages=[("user", "hello"), ("assistant", "hi")],
)
CHILD = PARENT._replace(
    title=None,
    system_prompt="Another prompt.",
    end_reason=None,
    messages=[("user", "something else")],
)
SUMMARY = ("user", f"{SUMMARY_PREFIXES[0]} what was said")
COPIED = [*PARENT.messages, ("user", "go on")]


def relations(child: Head, parent: Head = PARENT) -> tuple[Relation, Relation]:
    """The relation in a release that marks no helpers, and in one that marks them."""
    return (
        classify(parent, child, marks_helpers=False),
        classify(parent, child, marks_helpers=True),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "subagent"},
        {"source": "tool"},
        {"model_config": {**BY_AGENT, "_delegate_from": "parent"}},
        {"model_config": {**BY_AGENT, "_branched_from": "parent"}},
    ],
)
def test_a_helper_or_a_marked_branch_is_neither_whatever_it_holds(
    changes: dict[str, object],
) -> None:
    child = CHILD._replace(messages=[SUMMARY], **changes)  # type: ignore[arg-type]
    assert relations(child) == (Relation.NEITHER, Relation.NEITHER)


@pytest.mark.parametrize("place", [0, 15])
@pytest.mark.parametrize(
    "content",
    [
        *(f"\n{prefix} so far" for prefix in SUMMARY_PREFIXES),
        "hello\n[END OF PRIOR CONTEXT \N{EM DASH} COMPACTION SUMMARY BELOW]\nso far",
    ],
)
def test_a_summary_among_the_first_messages_makes_a_continuation(place: int, content: str) -> None:
    messages = [*[("user", "kept")] * place, ("user", content)]
    child = CHILD._replace(messages=messages, model_config={})
    assert relations(child) == (Relation.CONTINUATION, Relation.CONTINUATION)


def test_a_summary_that_comes_late_or_is_no_text_says_nothing() -> None:
    late = CHILD._replace(messages=[*[("user", "kept")] * 16, SUMMARY], model_config={})
    binary = CHILD._replace(messages=[("user", SUMMARY[1].encode())], model_config={})
    assert relations(late) == relations(binary) == (Relation.NEITHER, Relation.NEITHER)


def test_a_copy_of_everything_is_a_rotation_only_in_an_older_release() -> None:
    child = CHILD._replace(messages=COPIED)
    assert relations(child) == (Relation.CONTINUATION, Relation.BRANCH)
    without_agent = child._replace(model_config={})
    assert relations(without_agent) == (Relation.BRANCH, Relation.BRANCH)


def test_a_child_of_a_session_without_messages_copies_nothing() -> None:
    empty = PARENT._replace(messages=[])
    assert relations(CHILD._replace(model_config={}), empty) == (
        Relation.NEITHER,
        Relation.NEITHER,
    )


def test_a_row_that_no_agent_of_that_source_made_is_neither() -> None:
    fork = CHILD._replace(title="A plan #2", model_config={})
    other = CHILD._replace(title="A plan #2", source="telegram")
    assert relations(fork) == relations(other) == (Relation.NEITHER, Relation.NEITHER)


@pytest.mark.parametrize(
    ("title", "next_title", "continues"),
    [
        ("A plan", "A plan #2", True),
        ("A plan #2", "A plan #3", True),
        ("A plan #2", "A plan #2", False),
        ("A plan", "A plan", False),
        ("A plan", "A plan 2", False),
        ("", " #2", False),
        (None, "A plan #2", False),
    ],
)
def test_the_next_number_in_the_title_makes_a_continuation(
    title: str | None, next_title: str, continues: bool
) -> None:
    parent, child = PARENT._replace(title=title), CHILD._replace(title=next_title)
    expected = Relation.CONTINUATION if continues else Relation.NOT_YET
    assert relations(child, parent)[0] is expected


def test_where_every_helper_is_marked_any_other_child_is_a_continuation() -> None:
    assert relations(CHILD) == (Relation.NOT_YET, Relation.CONTINUATION)


def test_a_child_that_was_compressed_itself_is_a_continuation() -> None:
    assert relations(CHILD._replace(end_reason="compression"))[0] is Relation.CONTINUATION


def test_the_same_prompt_but_for_its_date_makes_a_continuation() -> None:
    later = PROMPT.replace("Monday", "Tuesday")
    child = CHILD._replace(system_prompt=later)
    assert relations(child)[0] is Relation.CONTINUATION
    assert relations(child._replace(messages=[]))[0] is Relation.NOT_YET
    assert relations(child._replace(system_prompt=None))[0] is Relation.NOT_YET


def test_another_limit_of_turns_is_that_of_a_subagent() -> None:
    parent = PARENT._replace(model_config={**BY_AGENT, "max_iterations": 90})
    child = CHILD._replace(system_prompt=PROMPT, model_config={**BY_AGENT, "max_iterations": 50})
    assert relations(child, parent)[0] is Relation.NOT_YET
    same = child._replace(model_config=parent.model_config)
    assert relations(same, parent)[0] is Relation.CONTINUATION
    unknown = child._replace(model_config=BY_AGENT)
    assert relations(unknown, parent)[0] is Relation.CONTINUATION


@pytest.mark.parametrize("analyzed", [False, True])
def test_what_is_new_is_found_without_a_look_at_every_row(tmp_path: Path, analyzed: bool) -> None:
    """It is asked under the write lock, and a home may have 100,000 sessions."""
    connection = apsw.Connection(str(small_home(tmp_path / "home", 1_000) / "state.db"))
    if analyzed:
        connection.execute("ANALYZE")
    plan = connection.execute(f"EXPLAIN QUERY PLAN {continuations._ANCESTORS}", (0, 0)).fetchall()
    steps = [str(detail) for *_, detail in plan]
    assert [each for each in steps if each.startswith(("SCAN sessions", "SCAN messages"))] == []
    assert sum(each.startswith("SEARCH sessions") for each in steps) == 3
    connection.close()
