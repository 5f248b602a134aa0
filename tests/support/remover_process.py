"""A process that takes things, restores them or purges them, and may be killed meanwhile.

Run as a module, it executes one line of JSON after another, each in its own child.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from exporter.pruner.apply.files import FileRemover
from exporter.pruner.apply.purge import PurgeRemover
from exporter.pruner.apply.remover import Remover
from exporter.pruner.apply.repositories import RepositoryRemover
from exporter.pruner.apply.store_projects import ProjectRemover
from exporter.pruner.models import Act
from exporter.runs.folder import run_folder
from exporter.runs.models import RecordedAction
from exporter.runs.trash import trash_of
from tests.real.hermes import REPOSITORY
from tests.support.kill_times import Instants


class Order(msgspec.Struct):
    """What to do to a home."""

    home: str
    do: str
    """take, taken, restore, delete (without the trash), or purge."""
    actions: list[RecordedAction]
    kill_after: float = -1.0


def obey(order: Order) -> list[Any]:
    """Return the result of the remover for each action."""
    owner = os.geteuid()
    removers: dict[str, Remover] = {
        Act.DELETE_FILE.value: FileRemover(order.home, owner),
        Act.DELETE_REPO.value: RepositoryRemover(order.home, owner),
        Act.DELETE_PROJECT.value: ProjectRemover(order.home, owner),
    }
    if order.do == "delete":
        return [removers[each.action.kind].take(each, None) for each in order.actions]
    with run_folder(order.home, owner, create=True) as folder:
        assert folder is not None
        run = order.actions[0].run
        if order.do == "purge":
            doomed = order.actions[0]
            action = msgspec.structs.replace(doomed.action, target=run)
            return [PurgeRemover(folder).take(msgspec.structs.replace(doomed, action=action), None)]
        with trash_of(folder, run, create=True) as trash:
            assert trash is not None
            return [
                getattr(removers[each.action.kind], order.do)(each, trash) for each in order.actions
            ]


def main() -> None:
    for line in sys.stdin:
        order = msgspec.json.decode(line, type=Order)
        told, tell = os.pipe()
        child = os.fork()
        if not child:
            os.close(told)
            os.write(tell, msgspec.json.encode(obey(order)))
            os._exit(0)
        os.close(tell)
        if order.kill_after >= 0:
            time.sleep(order.kill_after)
            os.kill(child, signal.SIGKILL)
        answer = b""
        while chunk := os.read(told, 65536):
            answer += chunk
        os.close(told)
        os.waitpid(child, 0)
        print(answer.decode() or "null", flush=True)


class Crew:
    """The client side of the process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(
        self, home: Path, do: str, actions: Sequence[RecordedAction], kill_after: float = -1.0
    ) -> list[Any] | None:
        """Return the results of the removers; None if it was killed before."""
        order = Order(str(home), do, list(actions), kill_after)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order).decode() + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the crew has ended"
        answer: list[Any] | None = msgspec.json.decode(line)
        return answer

    def until_done(
        self, home: Path, do: str, actions: Sequence[RecordedAction], instants: Instants
    ) -> int:
        """Repeat it, killed at random moments, until it finishes; return the number of kills."""
        for killed in range(10_000):
            said = self.ask(home, do, actions, instants.draw())
            instants.heed(killed=said is None)
            if said is not None:
                assert not any(said), said
                return killed
        raise AssertionError(f"{do} never gets through")


@contextmanager
def crew(wrapper: Sequence[str] = ()) -> Iterator[Crew]:
    with subprocess.Popen(
        [*wrapper, sys.executable, "-m", "tests.support.remover_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    ) as process:
        yield Crew(process)
        assert process.stdin is not None
        process.stdin.close()


if __name__ == "__main__":
    main()
