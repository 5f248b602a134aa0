"""The hermes-agent releases under test, and running code inside one of them."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSIONS = ("0.13.0", "0.14.0", "0.15.2", "0.16.0", "0.17.0", "0.18.2", "0.19.0")
NEWEST = VERSIONS[-1]
REPOSITORY = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"
CACHE = REPOSITORY / ".cache" / "hermes"


@dataclass(frozen=True)
class Hermes:
    """One release: the interpreter that runs it and the environment that makes it this release."""

    version: str
    python: Path
    folder: Path

    @property
    def program(self) -> Path:
        """The `hermes` console script."""
        return self.folder / "bin" / "hermes"

    @property
    def chat_arguments(self) -> tuple[str, ...]:
        """What starts a chat on the terminal; from 0.16.0 on a TUI can be the default."""
        return ("chat", "--cli") if self.at_least("0.16.0") else ("chat",)

    def at_least(self, version: str) -> bool:
        return VERSIONS.index(self.version) >= VERSIONS.index(version)

    def environment(self, home: Path, user_home: Path | None = None) -> dict[str, str]:
        """A clean environment whose HERMES_HOME is `home`; nothing of the developer's own leaks in.

        HOME is a folder beside the home. Whatever wants to leave this machine meets a closed port.
        """
        user = user_home or home.parent / f"{home.name}-user"
        user.mkdir(exist_ok=True)
        return {
            "ALL_PROXY": NOWHERE,
            "HERMES_DISABLE_LAZY_INSTALLS": "1",
            "HERMES_HOME": str(home),
            "HOME": str(user),
            "HTTPS_PROXY": NOWHERE,
            "HTTP_PROXY": NOWHERE,
            "LANG": "C.UTF-8",
            "NO_PROXY": "127.0.0.1,localhost",
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{self.folder}{os.pathsep}{REPOSITORY}",
            "TZ": "UTC",
        }

    def call(self, home: Path, *words: str | Path) -> None:
        """Run the `hermes` command on a home to its end; it asks nothing and must not fail."""
        subprocess.run(
            [self.python, self.program, *words],
            env=self.environment(home),
            cwd=home.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=60,
        )

    def command(self, module: str, *arguments: str) -> list[str]:
        """The command line that runs one of the modules in `inside/`."""
        return [str(self.python), "-m", f"tests.real.inside.{module}", *arguments]

    def run(
        self, module: str, home: Path, *, patience_seconds: float = 300.0, **request: Any
    ) -> Any:
        """Run a module of `inside/` to its end: `request` in as JSON, its answer out as JSON."""
        done = subprocess.run(
            self.command(module),
            input=json.dumps({"home": str(home), "version": self.version, **request}),
            env=self.environment(home),
            cwd=home.parent,
            capture_output=True,
            text=True,
            timeout=patience_seconds,
        )
        if done.returncode != 0:
            raise AssertionError(f"hermes {self.version}: {module} failed\n{done.stderr}")
        return json.loads(done.stdout)


def dependencies_python() -> Path:
    return CACHE / "python" / "bin" / "python"


def release_folder(version: str) -> Path:
    return CACHE / version


def python_for(version: str) -> Hermes:
    """The installed release `version`; `make test-kit` installs them all."""
    hermes = Hermes(version, dependencies_python(), release_folder(version))
    if not hermes.program.exists() or not hermes.python.exists():
        raise AssertionError(f"hermes-agent {version} is not installed; run `make test-kit`")
    return hermes
