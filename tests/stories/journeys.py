"""What a process does next on its session, and what a user is shown of it afterwards."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.real.cli import ask
from tests.real.hermes import Hermes
from tests.real.stub_model import DELEGATE, FILL, HANG, StubModel
from tests.real.terminal import PATIENCE_SECONDS
from tests.real.waiting import wait_until
from tests.stories.talkers import SHORT, TURNS, Talker, converse, say

Meanwhile = Callable[[str], None]
"""What happens to the session while it is in use: it is reaped, or nothing."""


@dataclass(frozen=True)
class World:
    """One release, its home and its model."""

    hermes: Hermes
    home: Path
    model: StubModel


@dataclass(frozen=True)
class Told:
    """A conversation after a journey."""

    session: str
    """The one that was in use when the journey began."""
    line: str
    """The last question."""
    source: str


@dataclass(frozen=True)
class View:
    """What a user is shown. Sessions are letters in the order they began; A is the one in use."""

    ends: str
    """How each of them ended; `-` for an open one."""
    listed: str
    """Those in `hermes sessions list`."""
    last: str
    """The one that `-c` takes up."""
    resumed: str
    """The one that `--resume A` takes up."""
    shown: bool
    """Whether that one shows the last question."""
    found: str
    """Those that the search for the last question finds."""
    lost: int
    """How many questions are stored nowhere."""

    def __str__(self) -> str:
        shows = "shows it" if self.shown else "does not show it"
        return (
            f"{self.ends}; list {self.listed}; -c {self.last}; --resume {self.resumed} {shows}; "
            f"search {self.found}"
        )


def message(world: World, talker: Talker, meanwhile: Meanwhile) -> Told:
    """The next question."""
    session = converse(talker, world.home)
    meanwhile(session)
    return Told(session, say(talker), talker.source)


def message_under_way(world: World, talker: Talker, meanwhile: Meanwhile) -> Told:
    """The question that is being answered when the session is reaped."""
    session = converse(talker, world.home)
    line = talker.ask(HANG)
    _wait_until_asked(world, line)
    meanwhile(session)
    _let_go_on(world, talker)
    return Told(session, line, talker.source)


def compress(world: World, talker: Talker, meanwhile: Meanwhile) -> Told:
    """`/compress`, and the next question."""
    return _compress(world, talker, meanwhile, TURNS)


def compress_little(world: World, talker: Talker, meanwhile: Meanwhile) -> Told:
    """`/compress` where there is nothing to summarize, and the next question."""
    return _compress(world, talker, meanwhile, SHORT)


def compress_automatically(world: World, talker: Talker, meanwhile: Meanwhile) -> Told:
    """A question for which Hermes itself compresses first."""
    session = converse(talker, world.home)
    say(talker, FILL)
    meanwhile(session)
    return Told(session, say(talker), talker.source)


def branch(world: World, talker: Talker, meanwhile: Meanwhile) -> Told:
    """`/branch`, and the next question there."""
    session = converse(talker, world.home)
    meanwhile(session)
    talker.branch()
    return Told(session, say(talker), talker.source)


def delegate(world: World, talker: Talker, meanwhile: Meanwhile) -> Told:
    """A subagent that is at work when the session is reaped."""
    session = converse(talker, world.home)
    line = talker.ask(f"{DELEGATE} {HANG}")
    _wait_until_asked(world, line.removeprefix(DELEGATE).strip())
    meanwhile(session)
    world.model.release.set()  # until the end: the result repeats the words that hang
    talker.wait()
    talker.wait_for_helpers()
    world.model.release.clear()
    return Told(session, line, talker.source)


def leave(world: World, talker: Talker, meanwhile: Meanwhile) -> Told:
    """The user goes on with another conversation."""
    session = converse(talker, world.home)
    line = say(talker)
    meanwhile(session)
    talker.begin()
    return Told(session, line, talker.source)


JOURNEYS: dict[str, Callable[[World, Talker, Meanwhile], Told]] = {
    each.__name__: each
    for each in (
        message,
        message_under_way,
        compress,
        compress_little,
        branch,
        delegate,
        leave,
        compress_automatically,  # last: its long answer stays on the screen of a chat
    )
}


def _compress(world: World, talker: Talker, meanwhile: Meanwhile, turns: int) -> Told:
    session = converse(talker, world.home, turns)
    meanwhile(session)
    talker.compress()
    return Told(session, say(talker), talker.source)


def _wait_until_asked(world: World, line: str) -> None:
    wait_until(lambda: line in world.model.half_answered, "the model is asked", PATIENCE_SECONDS)


def _let_go_on(world: World, talker: Talker) -> None:
    world.model.release.set()
    talker.wait()
    world.model.release.clear()


def look(world: World, told: Told) -> View:
    """What a user is shown now."""
    rows = ask(world.home, _LINEAGE.format(session=told.session))
    letters = {row["id"]: string.ascii_uppercase[number] for number, row in enumerate(rows)}
    found = world.hermes.run(
        "look", world.home, session=told.session, words=told.line, source=told.source
    )
    return View(
        ends=" ".join(f"{letters[row['id']]}:{row['end_reason'] or '-'}" for row in rows),
        listed=_named(letters, found["listed"]),
        last=_named(letters, [found["last"]]),
        resumed=_named(letters, [found["resumed"]]),
        shown=any(told.line in content for content in found["loaded"]),
        found=_named(letters, found["found"]),
        lost=count_lost(world),
    )


_LINEAGE = """
    WITH RECURSIVE lineage(id) AS (
        SELECT '{session}' UNION SELECT s.id FROM sessions s JOIN lineage l
        ON s.parent_session_id = l.id
    )
    SELECT s.id, s.end_reason FROM sessions s JOIN lineage USING (id) ORDER BY s.started_at, s.id
"""


def _named(letters: dict[str, str], sessions: list[str]) -> str:
    return "".join(sorted(letters[each] for each in sessions if each in letters))


def count_lost(world: World) -> int:
    """How many questions so far are stored nowhere."""
    stored = "\n".join(str(row["content"]) for row in ask(world.home, _STORED))
    asked = [each for each in world.model.questions if each.startswith(("hello", HANG, DELEGATE))]
    return sum(each not in stored for each in asked)


_STORED = "SELECT content FROM messages WHERE role = 'user'"
