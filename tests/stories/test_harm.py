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

from tests.real.cli import ask, numbered
from tests.real.cron import cron_job
from tests.real.hermes import VERSIONS, python_for
from tests.real.mistakes import heal, reap_in_use
from tests.real.stub_model import HANG, stub_model
from tests.real.terminal import PATIENCE_SECONDS
from tests.stories.journeys import JOURNEYS, Told, World, count_lost, look
from tests.stories.talkers import KINDS, Talker, talker

IN_CI = frozenset(
    {("0.13.0", "chat"), ("0.16.0", "tui"), ("0.19.0", "chat"), ("0.19.0", "embedder")}
)
"""The kinds that people sit at, and each way of compression, once; all of them at full size."""
SLOW = ("0.19.0", "delegate")
"""A turn of its own answers the result of a subagent there."""
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
        "0.18.2",
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
    Row(
        "compress_little",
        "0.18.2",
        ALL,
        right=f"A:compression B:-; {ON_B}",
        harmed="A:reaped B:-; list A; -c B; --resume B shows it; search B",
        healed=f"A:compression B:-; {ON_B}",
    ),
    Row("compress_little", "0.19.0", ALL, OPEN, REAPED, OPEN),
    # The editor's `/compact` stays on its session, and drops what it has summarized.
    Row("compress", "0.13.0", "acp", OPEN, REAPED, OPEN, dropped=1),
    Row("compress", "0.18.2", "acp", OPEN, REAPED, OPEN),
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
        "0.17.0",
        "acp",
        right="A:compression B:compression C:-; list C; -c A; --resume C shows it; search ABC",
        harmed="A:reaped B:compression C:-; list A; -c A; --resume A shows it; search ABC",
        healed="A:compression B:compression C:-; list C; -c A; --resume C shows it; search ABC",
        dropped=2,
    ),
    Row(
        "compress_automatically",
        "0.17.0",
        f"{ALL} api",
        right="A:compression B:compression C:-; list C; -c C; --resume C shows it; search ABC",
        harmed="A:reaped B:compression C:-; list A; -c C; --resume A shows it; search ABC",
        healed="A:compression B:compression C:-; list C; -c C; --resume C shows it; search ABC",
    ),
    Row(  # it compresses once more, and stores the question before it does
        "compress_automatically",
        "0.18.2",
        f"{ALL} api acp",
        right="A:compression B:compression C:compression D:-; "
        "list D; -c D; --resume D does not show it; search ABC",
        harmed="A:reaped B:compression C:compression D:-; "
        "list A; -c D; --resume D does not show it; search ABC",
        healed="A:compression B:compression C:compression D:-; "
        "list D; -c D; --resume D does not show it; search ABC",
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
        "0.18.2",
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
        "0.18.2",
        f"{ALL} api acp",
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


CRON = Row("finish", "0.13.0", "cron", "A:cron_complete", "A:reaped", "A:reaped")
"""A job in the middle of its only turn; the process ends with it."""


def can(version: str, kind: str, journey: str) -> bool:
    """Whether a process of this kind has the command for it."""
    if kind == "api":
        # A client has no `/compress`; it can fork from 0.16 on.
        return journey not in ("compress", "compress_little") and not (
            journey == "branch" and VERSIONS.index(version) < VERSIONS.index("0.16.0")
        )
    if journey == "branch":
        return kind not in ("embedder", "plugin")
    return True


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
            group = pytest.mark.xdist_group(f"{kind} of {version}")
            for journey in JOURNEYS:
                if can(version, kind, journey):
                    in_ci = (version, kind) in IN_CI and (version, journey) != SLOW
                    marks = [group] if in_ci else [group, pytest.mark.full]
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


@pytest.mark.full
@pytest.mark.parametrize("version", ["0.13.0", "0.16.0", "0.19.0"])
def test_a_cron_job_that_is_reaped_in_its_run_loses_only_its_end_reason(
    version: str, tmp_path: Path
) -> None:
    home, line = tmp_path / "home", numbered(HANG)
    with stub_model() as model:
        model.configure(home)
        with cron_job(python_for(version), home, model, line) as (process, session):
            assert reap_in_use(home, session) == ""
            model.release.set()
            assert process.wait(PATIENCE_SECONDS) == 0
    shown = "SELECT end_reason, (SELECT COUNT(*) FROM messages) AS messages FROM sessions"
    for _ in range(2):
        (row,) = ask(home, shown)
        assert (f"A:{row['end_reason']}", row["messages"]) == (CRON.healed, 2)
        heal(home)


@pytest.mark.parametrize("version", [pytest.param("0.13.0", marks=pytest.mark.full), "0.16.0"])
def test_a_subagent_of_an_api_server_that_is_reaped_at_work_loses_nothing_and_is_healed(
    version: str, tmp_path: Path
) -> None:
    """Its row has the source `api_server` there, and is judged as a subagent's all the same."""
    home, whys, helpers = tmp_path / "home", list[str](), list[str]()

    def reap_helper(session: str) -> None:
        (helper,) = ask(home, f"SELECT id FROM sessions WHERE parent_session_id = '{session}'")
        helpers.append(helper["id"])
        whys.append(reap_in_use(home, helper["id"]))

    with stub_model() as model:
        model.configure(home)
        world = World(python_for(version), home, model)
        with talker("api", world.hermes, home) as process:
            told = JOURNEYS["delegate"](world, process, reap_helper)
            heal(home)
            shown = look(world, told)
    assert whys == [""]
    assert (str(shown), shown.lost) == (row_of("delegate", "api", version).right, 0)
    (row,) = ask(
        home,
        "SELECT end_reason, (SELECT COUNT(*) FROM messages WHERE session_id = sessions.id) AS said "
        f"FROM sessions WHERE id = '{helpers[0]}'",
    )
    assert (row["end_reason"], row["said"]) == (None, 2)


_BUILDERS = {
    "cli.py": "chat",
    "run_agent.py": "embedder",
    "acp_adapter": "acp",
    "agent": "helpers in a thread of any of these, on sessions of their own",
    "batch_runner.py": "keeps nothing in the database",
    "cron": "cron",
    "gateway": "api, or a gateway's own chats, which are routed",
    "hermes_cli/cli_agent_setup_mixin.py": "chat",
    "hermes_cli/cli_commands_mixin.py": "chat",
    "hermes_cli/main.py": "chat",
    "hermes_cli/oneshot.py": "a one-shot, which is a chat of one turn",
    "hermes_cli/prompt_size.py": "asks nothing",
    "plugins": "plugin",
    "rl_cli.py": "embedder",
    "tools": "subagents",
    "tui_gateway": "tui, also of the dashboard and of `serve`",
}
"""Where Hermes builds agents, and the kind of process in the table that this is."""


@pytest.mark.parametrize("version", VERSIONS)
def test_every_place_where_hermes_builds_an_agent_is_in_the_table(version: str) -> None:
    """A dashboard builds none: it was not run, and is a TUI by its code."""
    folder = python_for(version).folder
    own = [each for each in _BUILDERS if (folder / each).exists()]
    packages = [folder / each for each in ("hermes_cli", *own)]
    files = [
        file for each in packages for file in ([each] if each.is_file() else each.rglob("*.py"))
    ]
    found = {str(each.relative_to(folder)) for each in files if b"AIAgent(" in each.read_bytes()}
    assert "tui_gateway/server.py" in found
    assert not [each for each in found if each not in own and each.split("/")[0] not in own]


def test_the_page_shows_this_table() -> None:
    from tests.stories import harm_table  # it imports this module

    assert harm_table.PAGE.read_text() == harm_table.page(), "python -m tests.stories.harm_table"
