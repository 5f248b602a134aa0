"""A session is ended while a process is on it: what that costs, and what is left after healing.

This is the harm table: kind of process, what it does next, and release. A reap that is wrong loses
no message in any of them. What a user is shown goes wrong until the next scan has healed it; an end
that Hermes could not write, because ours was there first, is lost where nothing comes after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.real.hermes import VERSIONS, python_for
from tests.real.mistakes import heal, reap_in_use
from tests.real.stub_model import stub_model
from tests.stories.journeys import JOURNEYS, Told, World, count_lost, look
from tests.stories.talkers import KINDS, Talker, talker

IN_CI = frozenset(
    {("0.13.0", "chat"), ("0.16.0", "tui"), ("0.19.0", "chat"), ("0.19.0", "embedder")}
)
"""The kinds that people sit at, and each way of compression, once; all of them at full size."""
HELD = "it is held: delegation"
"""From 0.19 on a subagent that runs beside its parent is noted in the database."""


class Row(NamedTuple):
    """What a user is shown, from a release on."""

    journey: str
    since: str
    kinds: str
    right: str
    """Without a reap."""
    harmed: str
    """After a reap in the middle, and no healing."""
    healed: str
    """After one healing."""
    dropped: int = 0
    """How many questions Hermes itself drops on the way, reaped or not."""


ALONE = "list A; -c A; --resume A shows it; search A"
OPEN, REAPED = f"A:-; {ALONE}", f"A:reaped; {ALONE}"
ON_B = "list B; -c B; --resume B shows it; search B"
ON_C = "list C; -c C; --resume C shows it; search C"
STALE_B = "list A; -c B; --resume A does not show it; search B"
STALE_C = "list A; -c C; --resume A does not show it; search C"
ALL = "chat tui embedder plugin"
"""`plugin` is a thread in a gateway, `api` a client of its API server, `acp` an editor."""

TABLE = (
    Row("message", "0.13.0", f"{ALL} api acp", OPEN, REAPED, OPEN),
    Row("message_under_way", "0.13.0", f"{ALL} api acp", OPEN, REAPED, OPEN),
    Row(
        "compress",
        "0.13.0",
        ALL,
        right=f"A:compression B:-; {ON_B}",
        harmed=f"A:reaped B:-; {STALE_B}",
        healed=f"A:compression B:-; {ON_B}",
    ),
    Row(
        "compress",
        "0.19.0",
        ALL,
        right=f"A:compression B:-; {ON_B}",
        harmed="A:reaped B:-; list A; -c B; --resume B shows it; search B",
        healed=f"A:compression B:-; {ON_B}",
    ),
    Row(
        "compress_little",
        "0.13.0",
        ALL,
        right=f"A:compression B:-; {ON_B}",
        harmed=f"A:reaped B:-; {STALE_B}",
        healed=f"A:compression B:-; {ON_B}",
    ),
    Row("compress_little", "0.19.0", ALL, OPEN, REAPED, OPEN),
    # The editor's `/compact` stays on its session, and drops what it has summarized.
    Row("compress", "0.13.0", "acp", OPEN, REAPED, OPEN, dropped=1),
    Row("compress", "0.19.0", "acp", OPEN, REAPED, OPEN),
    Row("compress_little", "0.13.0", "acp", OPEN, REAPED, OPEN),
    Row(
        "compress_automatically",
        "0.13.0",
        f"{ALL} api",
        right=f"A:compression B:compression C:-; {ON_C}",
        harmed=f"A:reaped B:compression C:-; {STALE_C}",
        healed=f"A:compression B:compression C:-; {ON_C}",
    ),
    Row(  # it stores the conversation in its first session too
        "compress_automatically",
        "0.13.0",
        "acp",
        right="A:compression B:compression C:-; list C; -c A; --resume C shows it; search AC",
        harmed="A:reaped B:compression C:-; list A; -c A; --resume A shows it; search AC",
        healed="A:compression B:compression C:-; list C; -c A; --resume C shows it; search AC",
        dropped=2,
    ),
    Row(
        "compress_automatically",
        "0.19.0",
        f"{ALL} api acp",
        right="A:compression B:compression C:-; list C; -c C; --resume C shows it; search ABC",
        harmed="A:reaped B:compression C:-; list A; -c C; --resume C shows it; search ABC",
        healed="A:compression B:compression C:-; list C; -c C; --resume C shows it; search ABC",
    ),
    Row(
        "branch",
        "0.13.0",
        "chat",
        right="A:branched B:-; list AB; -c B; --resume A does not show it; search B",
        harmed="A:reaped B:-; list A; -c B; --resume A does not show it; search B",
        healed="A:branched B:-; list AB; -c B; --resume A does not show it; search B",
    ),
    Row(  # it is marked, and so it is listed whatever the end of the other
        "branch",
        "0.16.0",
        "chat",
        right="A:branched B:-; list AB; -c B; --resume A does not show it; search B",
        harmed="A:reaped B:-; list AB; -c B; --resume A does not show it; search B",
        healed="A:reaped B:-; list AB; -c B; --resume A does not show it; search B",
    ),
    Row(  # the other one stays on the screen, in a window of its own
        "branch",
        "0.13.0",
        "tui",
        right="A:- B:-; list A; -c B; --resume A does not show it; search B",
        harmed="A:reaped B:-; list A; -c B; --resume A does not show it; search B",
        healed="A:branched B:-; list AB; -c B; --resume A does not show it; search B",
    ),
    Row(
        "branch",
        "0.16.0",
        "tui",
        right="A:- B:-; list AB; -c B; --resume A does not show it; search B",
        harmed="A:reaped B:-; list AB; -c B; --resume A does not show it; search B",
        healed="A:reaped B:-; list AB; -c B; --resume A does not show it; search B",
    ),
    Row(  # a fork
        "branch",
        "0.16.0",
        "api",
        right="A:branched B:-; list AB; -c B; --resume A does not show it; search B",
        harmed="A:reaped B:-; list A; -c B; --resume A does not show it; search B",
        healed="A:branched B:-; list AB; -c B; --resume A does not show it; search B",
    ),
    Row(
        "branch",
        "0.19.0",
        "api",
        right="A:branched B:-; list AB; -c B; --resume B shows it; search B",
        harmed="A:reaped B:-; list A; -c B; --resume B shows it; search B",
        healed="A:branched B:-; list AB; -c B; --resume B shows it; search B",
    ),
    Row(  # the copy names no parent
        "branch",
        "0.13.0",
        "acp",
        right="A:-; list A; -c ; --resume A does not show it; search ",
        harmed="A:reaped; list A; -c ; --resume A does not show it; search ",
        healed="A:reaped; list A; -c ; --resume A does not show it; search ",
    ),
    Row(
        "delegate",
        "0.13.0",
        f"{ALL} api acp",
        right=f"A:- B:-; {ALONE}",
        harmed=f"A:reaped B:-; {ALONE}",
        healed=f"A:- B:-; {ALONE}",
    ),
    Row(
        "delegate",
        "0.19.0",
        "api",
        right=f"A:- B:agent_close; {ALONE}",
        harmed=f"A:reaped B:agent_close; {ALONE}",
        healed=f"A:- B:agent_close; {ALONE}",
    ),
    Row(  # not reaped at all: see HELD
        "delegate",
        "0.19.0",
        f"{ALL} acp",
        right=f"A:- B:agent_close; {ALONE}",
        harmed=f"A:- B:agent_close; {ALONE}",
        healed=f"A:- B:agent_close; {ALONE}",
    ),
    Row(  # `/new` makes its row at once, and that is the last one then
        "leave",
        "0.13.0",
        "chat",
        right="A:new_session; list A; -c ; --resume A shows it; search A",
        harmed="A:reaped; list A; -c ; --resume A shows it; search A",
        healed="A:reaped; list A; -c ; --resume A shows it; search A",
    ),
    Row("leave", "0.13.0", "tui", f"A:tui_close; {ALONE}", REAPED, REAPED),
    Row("leave", "0.13.0", "embedder plugin api", OPEN, REAPED, REAPED),
    Row(
        "leave",
        "0.13.0",
        "acp",
        right="A:-; list A; -c ; --resume A shows it; search A",
        harmed="A:reaped; list A; -c ; --resume A shows it; search A",
        healed="A:reaped; list A; -c ; --resume A shows it; search A",
    ),
)


def can(version: str, kind: str, journey: str) -> bool:
    """Whether a process of this kind has the command for it."""
    if kind == "api":
        # A client has no `/compress`; it can fork from 0.16 on.
        return journey not in ("compress", "compress_little") and not (
            journey == "branch" and VERSIONS.index(version) < VERSIONS.index("0.16.0")
        )
    if journey == "branch":
        return kind not in ("embedder", "plugin")
    # A chat of 0.18.2 on answers the result of its subagent in a turn of its own, of which the
    # driver does not see the end yet.
    return (kind, journey) != ("chat", "delegate") or version not in ("0.18.2", "0.19.0")


def row_of(journey: str, kind: str, version: str) -> Row:
    """The newest row that is not newer than the release."""
    order = VERSIONS.index(version)
    fitting = [
        each
        for each in TABLE
        if each.journey == journey
        and kind in each.kinds.split()
        and VERSIONS.index(each.since) <= order
    ]
    return max(fitting, key=lambda each: VERSIONS.index(each.since))


def _cases() -> Iterator[object]:
    for version in VERSIONS:
        for kind in KINDS:
            marks = [pytest.mark.xdist_group(f"{kind} of {version}")]
            if (version, kind) not in IN_CI:
                marks.append(pytest.mark.full)
            for journey in JOURNEYS:
                if can(version, kind, journey):
                    name = f"{version}-{kind}-{journey}"
                    yield pytest.param((version, kind), journey, marks=marks, id=name)


CASES = tuple(_cases())


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, Talker]]:
    """One process of a kind, which goes through all journeys one after the other."""
    version, kind = request.param
    home: Path = tmp_path_factory.mktemp("harm") / "home"
    with stub_model() as model:
        model.configure(
            home,
            context_length=64_000,
            compression={"in_place": False, "protect_last_n": 2},
            approvals={"destructive_slash_confirm": False},
        )
        world = World(python_for(version), home, model)
        with talker(kind, world.hermes, home) as process:
            yield world, process


@pytest.mark.parametrize(("stage", "journey"), CASES, indirect=["stage"])
def test_a_session_that_is_reaped_in_use_loses_nothing_and_is_healed(
    stage: tuple[World, Talker], journey: str, request: pytest.FixtureRequest
) -> None:
    world, process = stage
    version, kind = request.node.callspec.params["stage"]
    row = row_of(journey, kind, version)
    lost = count_lost(world) + row.dropped
    whys: list[str] = []
    told = JOURNEYS[journey](
        world, process, lambda session: whys.append(reap_in_use(world.home, session))
    )
    assert whys == [HELD if row.harmed == row.right else ""]
    harmed = look(world, told)
    heal(world.home)
    healed = look(world, told)
    assert (str(harmed), str(healed)) == (row.harmed, row.healed)
    assert (harmed.lost, healed.lost) == (lost, lost)


@pytest.mark.full
@pytest.mark.parametrize(("stage", "journey"), CASES, indirect=["stage"])
def test_what_hermes_shows_when_nothing_is_reaped(
    stage: tuple[World, Talker], journey: str, request: pytest.FixtureRequest
) -> None:
    """The column to compare the others with."""
    world, process = stage
    version, kind = request.node.callspec.params["stage"]
    told: Told = JOURNEYS[journey](world, process, lambda _: None)
    assert str(look(world, told)) == row_of(journey, kind, version).right
