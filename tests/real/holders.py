"""Real Hermes processes that keep a home's state.db open and obey the test."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.real.elsewhere import as_user
from tests.real.hermes import Hermes


class Holder:
    """The other end of `inside/hold.py`: one method call here is one command there."""

    def __init__(self, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self.process = process
        self._errors = errors
        self.pid: int = self._read()

    def ask(self, do: str, **arguments: Any) -> Any:
        """Send one command of `inside.hold.Holder` and return its answer."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(self._obituary()) from None
        return self._read()

    def kill(self) -> None:
        """SIGKILL, and wait for the process to be gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def is_running(self) -> bool:
        return self.process.poll() is None

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise AssertionError(self._obituary())
        return json.loads(line)

    def _obituary(self) -> str:
        self._errors.seek(0)
        return f"holder ended with {self.process.poll()}\n{self._errors.read()}"


@contextmanager
def holder(
    hermes: Hermes,
    home: Path,
    arguments: Sequence[str] | None = None,
    user: int | None = None,
    wrapper: Sequence[str] = (),
    module: str = "hold",
) -> Iterator[Holder]:
    """A process of this release with `home`'s database open; it closes and leaves at the end.

    With `arguments` its command line is that of the `hermes` program called with them. With
    `user` it runs as that uid and gid, which must be able to reach the home. `wrapper` is what
    comes before its command line. `module` is the one of `inside/` that obeys: `hold`, or `embed`
    for a program that runs agents.
    """
    command = hermes.command(module)
    if arguments is not None:
        command = [str(hermes.python), str(_program(home)), *arguments]
    if user is not None:
        command = [*as_user(user), *command]
    with obedient_process([*wrapper, *command], hermes, home) as running:
        yield running


@contextmanager
def obedient_process(command: Sequence[str], hermes: Hermes, home: Path) -> Iterator[Holder]:
    """Run a program of `inside/`; it ends with its input, at the end of the block."""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=hermes.environment(home),
            cwd=home.parent,
            text=True,
        ) as process,
    ):
        try:
            yield Holder(process, errors)
            _leave(process)
        finally:
            process.kill()


def _leave(process: subprocess.Popen[str]) -> None:
    """End of input tells it to go; one that was killed already has gone."""
    assert process.stdin is not None
    try:
        process.stdin.close()
    except BrokenPipeError:
        pass
    process.wait(timeout=60)


def _program(home: Path) -> Path:
    """A script named `hermes` that is a holder, so that the command line looks as a user's does."""
    program = home.parent / f"{home.name}-bin" / "hermes"
    program.parent.mkdir(exist_ok=True)
    program.write_text("from tests.real.inside.hold import main\n\nmain()\n")
    return program


_CARELESS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT COUNT(*) FROM sessions").fetchone()
connection.close()
"""


def open_carelessly(home: Path) -> None:
    """What a careless tool does: open state.db read-write with the standard library, and close.

    Beside a holder that lost its lock this unlinks the write-ahead log under it.
    """
    subprocess.run([sys.executable, "-c", _CARELESS, str(home / "state.db")], check=True)
