"""Sessions whose ids differ in next to nothing: what is done to one of them is done to it alone."""

from __future__ import annotations

import unicodedata
from collections import Counter
from pathlib import Path

from msgspec import structs

from exporter.pruner.apply.execute import execute as prune
from exporter.pruner.apply.undo import undo
from exporter.reaper.reap import execute as reap
from exporter.reaper.reopen import undo as reopen
from tests.real.hermes import NEWEST, python_for
from tests.support.home_picture import picture
from tests.support.prune_plans import plan, read_inventory, targets
from tests.support.pruned_home import transcript
from tests.support.reaping import REASON, dump, leaky_home, open_sessions, planned, target_of
from tests.support.session_pruning import KEEP_SECONDS, dump_all, prunable_process

PLAIN = "20260101_080000_aaaaaa"
UMLAUT = "20260101_080000_\N{LATIN SMALL LETTER A WITH DIAERESIS}"
SIMILAR = (
    PLAIN,
    PLAIN.upper(),
    PLAIN[:-1],
    f"{PLAIN} ",
    f"{PLAIN}\n",
    UMLAUT,
    unicodedata.normalize("NFD", UMLAUT),
)
WITH_NUL = f"{PLAIN}\0"
"""Counted as unreadable, and left alone."""


def test_each_is_reaped_and_given_back_alone(tmp_path: Path) -> None:
    home = leaky_home(python_for(NEWEST), tmp_path / "home", [*SIMILAR, WITH_NUL])
    before = dump(home)
    plan, place = planned(home)
    assert {action.target for action in plan.actions} == {*SIMILAR}
    for each in SIMILAR:
        only = tuple(action for action in plan.actions if action.target == each)
        ended = reap(structs.replace(plan, actions=only), place, end_reason=REASON)
        assert open_sessions(home) == {*SIMILAR, WITH_NUL} - {each}
        assert reopen(ended.run or "", target_of(home)).done == (each,)
        assert dump(home) == before


def test_each_is_pruned_and_given_back_alone_and_with_its_own_transcript(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with prunable_process(python_for(NEWEST), home) as writer:
        for number, each in enumerate((*SIMILAR, WITH_NUL)):
            writer.ask("old", session=each, count=number + 1)
    (home / "sessions").mkdir(exist_ok=True)
    for each in SIMILAR:
        (home / transcript(each)).write_text("{}")
    before, messages, files = picture(home), messages_of(home), transcripts(home)
    found = plan(read_inventory(home, days_later=90).inventory)
    assert {*targets(found)} == {*SIMILAR}
    for each in SIMILAR:
        both = {each, transcript(each)}
        taken = prune(found, target_of(home), keep_seconds=KEEP_SECONDS, only=both)
        assert set(taken.done) == both
        assert messages_of(home) == {key: n for key, n in messages.items() if key != each}
        assert transcripts(home) == files - {transcript(each)}
        assert set(undo(taken.run or "", target_of(home)).done) == both
        assert picture(home) == before


def messages_of(home: Path) -> Counter[str]:
    return Counter(bytes.fromhex(row[4]).decode() for row in dump_all(home)["messages"])


def transcripts(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in (home / "sessions").iterdir()}
