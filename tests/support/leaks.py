"""Every class of leak, every neighbour, and after how long a leak beside that neighbour is dead.

`python -m tests.support.leaks [VERSION…]` measures the whole table with the real package and
shortened settings, and writes it into docs/safety.md.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.real.api_server import api_server
from tests.real.cli import Chat, ask, chat, chat_once, gateway, kanban_worker, numbered
from tests.real.cli import user_environment as environment_of
from tests.real.hermes import REPOSITORY, VERSIONS, Hermes, python_for
from tests.real.holders import holder
from tests.real.stub_model import DELEGATE, HANG, StubModel, stub_model
from tests.real.terminal import PATIENCE_SECONDS
from tests.real.waiting import wait_until
from tests.support.verdicts import Watch, watching

ONE_SHOT = "one-shot that has finished"
IDLE = "chat killed at its prompt"
MID_TURN = "chat killed in mid-turn"
CRON = "cron run of a killed gateway"
SUBAGENT = "subagent of a killed gateway"
KANBAN = "kanban worker"
DELEGATING = "parent of a killed `delegate_task`"
LEAKS = (ONE_SHOT, IDLE, MID_TURN, CRON, SUBAGENT, KANBAN, DELEGATING)

NOBODY = "no process"
GATEWAY = "gateway"
OLDER_CHAT = "idle chat, older"
YOUNGER_CHAT = "idle chat, younger"
BUSY_CHAT = "busy chat"
PROGRAM = "embedding program"
NEIGHBOURS = (NOBODY, GATEWAY, OLDER_CHAT, YOUNGER_CHAT, BUSY_CHAT, PROGRAM)

SERVER_SECONDS, CHAT_SECONDS = 4.0, 8.0
_PRESUME = f"presume_after: {{server: {SERVER_SECONDS:g}s, chat: {CHAT_SECONDS:g}s}}"


class Cell(NamedTuple):
    """How a leak ends beside a neighbour, and after how many seconds."""

    verdict: str
    """`proven`, `presumed`, or what is in the way of either."""
    seconds: float = 0.0


# The leaks


def make_leaks(hermes: Hermes, home: Path, model: StubModel, *leaks: str) -> dict[str, str]:
    """Make these leaks in a home; return the session of each. No process is left."""
    jobs: dict[str, Callable[[], str]] = {
        ONE_SHOT: lambda: chat_once(hermes, home),
        IDLE: lambda: _killed_chat(hermes, home, lambda each: each.say()),
        MID_TURN: lambda: _killed_chat(hermes, home, lambda each: each.ask_for_ever(model)),
        KANBAN: lambda: kanban_worker(hermes, home),
        DELEGATING: lambda: _killed_chat(hermes, home, lambda each: _delegate(each, model)),
    }
    with ThreadPoolExecutor(3) as pool:
        running = {leak: pool.submit(jobs[leak]) for leak in leaks if leak in jobs}
        found = {leak: job.result() for leak, job in running.items()}
    if {CRON, SUBAGENT} & set(leaks):
        of_gateway = _killed_gateway(hermes, home, model)
        found |= {leak: of_gateway[leak] for leak in leaks if leak in of_gateway}
    return found


def _killed_chat(hermes: Hermes, home: Path, until: Callable[[Chat], object]) -> str:
    with chat(hermes, home) as window:
        session = window.session or window.say()
        until(window)
        window.kill()
    return session


def _delegate(window: Chat, model: StubModel) -> None:
    """Return when the subagent is in the middle of its answer."""
    line = window.ask(f"{DELEGATE} {HANG}").removeprefix(DELEGATE).strip()
    _wait_until_half_answered(model, line)


def _killed_gateway(hermes: Hermes, home: Path, model: StubModel) -> dict[str, str]:
    """A gateway that is killed in the middle of a cron run and of a subagent's answer."""
    line = numbered(HANG)
    _run(hermes, home, "cron", "create", "every 2h", line, "--deliver", "local")
    _make_due(home / "cron" / "jobs.json")
    parent = chat_once(hermes, home, words="a session that a client goes on with")
    helped = numbered(HANG)
    with api_server(hermes, home) as server:
        server.start_run(parent, f"{DELEGATE} {helped}")
        _wait_until_half_answered(model, helped)
        _wait_until_half_answered(model, line)
        server.process.kill()
        server.process.wait()
    (home / "cron" / "jobs.json").unlink()
    (home / ".env").unlink()
    (cron,) = ask(home, "SELECT id FROM sessions WHERE source = 'cron' AND ended_at IS NULL")
    (child,) = ask(
        home,
        "SELECT id FROM sessions WHERE parent_session_id IS NOT NULL ORDER BY rowid DESC LIMIT 1",
    )
    return {CRON: cron["id"], SUBAGENT: child["id"]}


def _make_due(jobs: Path) -> None:
    """`cron run` would run the job in its own process; the gateway runs what is due."""
    found = json.loads(jobs.read_text())
    for job in found["jobs"]:
        job["next_run_at"] = datetime.now(UTC).isoformat()
    jobs.write_text(json.dumps(found))


def _wait_until_half_answered(model: StubModel, line: str) -> None:
    wait_until(
        lambda: any(line in each for each in model.half_answered),
        f"the model is asked {line!r}",
        PATIENCE_SECONDS,
    )


def _run(hermes: Hermes, home: Path, *arguments: str) -> None:
    done = subprocess.run(
        [hermes.python, hermes.program, *arguments],
        env=environment_of(hermes, home),
        cwd=home.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# The neighbours


@contextmanager
def neighbour(kind: str, hermes: Hermes, home: Path, model: StubModel) -> Iterator[None]:
    with ExitStack() as stack:
        if kind == GATEWAY:
            stack.enter_context(gateway(hermes, home))
        elif kind in (OLDER_CHAT, YOUNGER_CHAT):
            stack.enter_context(chat(hermes, home))
        elif kind == BUSY_CHAT:
            stack.enter_context(chat(hermes, home)).ask_for_ever(model)
        elif kind == PROGRAM:
            stack.enter_context(holder(hermes, home, module="embed")).ask(
                "take_up", session="embedded_1"
            )
        yield


# The cells


def measure(
    hermes: Hermes,
    folder: Path,
    model: StubModel,
    leaks: Sequence[str] = LEAKS,
    neighbours: Sequence[str] = NEIGHBOURS,
) -> dict[tuple[str, str], Cell]:
    """Return how these leaks end beside these neighbours.

    Only beside an older chat an agent watches while they are made. For the others they are made
    once, and each neighbour gets a copy of the home.
    """
    found: dict[tuple[str, str], Cell] = {}
    made: tuple[Path, dict[str, str]] | None = None
    for kind in neighbours:
        home = folder / f"home-{NEIGHBOURS.index(kind)}"
        if kind == OLDER_CHAT:
            found |= _measure_beside_older_chat(hermes, home, model, leaks)
            continue
        if made is None:
            model.configure(folder / "leaks")
            made = folder / "leaks", make_leaks(hermes, folder / "leaks", model, *leaks)
        shutil.copytree(made[0], home, symlinks=True)
        with neighbour(kind, hermes, home, model):
            began = time.monotonic()
            with watching(folder / f"agent-{home.name}", home, reaper=_PRESUME) as watch:
                watch.scans(1)
                cells = wait_for_ends(watch, made[1].values(), began)
        found |= {(leak, kind): cells[session] for leak, session in made[1].items()}
    return found


def _measure_beside_older_chat(
    hermes: Hermes, home: Path, model: StubModel, leaks: Sequence[str]
) -> dict[tuple[str, str], Cell]:
    """The chat is there, and silent, before the first of them begins."""
    model.configure(home)
    chat_once(hermes, home)  # there is a database before the chat opens it
    with (
        neighbour(OLDER_CHAT, hermes, home, model),
        watching(home.parent / f"agent-{home.name}", home, reaper=_PRESUME) as watch,
    ):
        watch.scans(3)
        sessions = make_leaks(hermes, home, model, *leaks)
        began = time.monotonic()
        watch.scans(1)
        cells = wait_for_ends(watch, sessions.values(), began)
    return {(leak, OLDER_CHAT): cells[session] for leak, session in sessions.items()}


def wait_for_ends(watch: Watch, sessions: Iterable[str], began: float) -> dict[str, Cell]:
    """Return when all of these are dead, exempt or ended by Hermes itself, and how.

    `began` is when the agent was started, or the last of the leaks was made.
    """
    found, wanted = dict[str, Cell](), list(sessions)

    def all_have_ended() -> bool:
        for session in wanted:
            verdict = watch.verdict(session)
            if session in found or verdict in ("live", "unknown", "held"):
                continue
            ends = {"dead": "proven" if session in watch.proven else "presumed", None: "Hermes"}
            found[session] = Cell(ends.get(verdict, str(verdict)), time.monotonic() - began)
        return len(found) == len(wanted)

    try:
        wait_until(all_have_ended, "every leak has ended")
    except AssertionError as error:
        left = {
            each: (watch.verdict(each), watch.evidence(each) if watch.verdict(each) else None)
            for each in wanted
            if each not in found
        }
        raise AssertionError(f"{error}\n{json.dumps(left, indent=1)}") from None
    return found


# The page

BEGIN, END = "<!-- leaks: python -m tests.support.leaks -->\n", "<!-- end of leaks -->\n"


def _row(leak: str, by_version: dict[str, dict[tuple[str, str], Cell]]) -> str:
    cells = []
    for kind in NEIGHBOURS:
        words: dict[str, list[str]] = {}
        for version, found in sorted(by_version.items(), reverse=True):
            words.setdefault(found[leak, kind].verdict, []).append(version)
        said = [
            word if len(words) == 1 else f"{word} ({', '.join(versions)})"
            for word, versions in words.items()
        ]
        cells.append("; ".join(said))
    return f"| {leak} | " + " | ".join(cells) + " |"


def page(by_version: dict[str, dict[tuple[str, str], Cell]]) -> str:
    """Return the table, and the seconds that were measured."""
    lines = [
        f"| leak | {' | '.join(NEIGHBOURS)} |",
        f"| --- |{' --- |' * len(NEIGHBOURS)}",
        *(_row(leak, by_version) for leak in LEAKS),
        "",
    ]
    seconds: dict[str, list[float]] = {}
    for found in by_version.values():
        for (_, kind), cell in found.items():
            if cell.verdict in ("proven", "presumed"):
                key = "proven" if cell.verdict == "proven" else f"presumed beside {_place(kind)}"
                seconds.setdefault(key, []).append(cell.seconds)
    measured = "; ".join(
        f"{key} after {min(each):.1f} to {max(each):.1f} s" for key, each in sorted(seconds.items())
    )
    lines.append(
        f"Measured with hermes-agent {', '.join(by_version)}, `min_idle` 1 s, `presume_after` "
        f"{SERVER_SECONDS:g} s and {CHAT_SECONDS:g} s, from the start of the agent: {measured}."
    )
    return "\n".join(lines) + "\n"


def _place(kind: str) -> str:
    return "a server" if kind == GATEWAY else "a chat or program"


def main() -> None:
    versions = sys.argv[1:] or ["0.13.0", "0.16.0", VERSIONS[-1]]
    by_version = {}
    for version in versions:
        with tempfile.TemporaryDirectory(prefix="leaks-") as folder, stub_model() as model:
            by_version[version] = measure(python_for(version), Path(folder), model)
        for (leak, kind), cell in by_version[version].items():
            print(
                f"{version} | {leak} | {kind} | {cell.verdict} | {cell.seconds:.1f} s", flush=True
            )
    path = REPOSITORY / "docs" / "safety.md"
    before, _, rest = path.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}{page(by_version)}{END}{after}")


if __name__ == "__main__":
    main()
