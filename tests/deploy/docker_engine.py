"""A Docker Engine of the test's own, on a private socket, without a network of its own.

No registry is asked: the base image is a stand-in that is bootstrapped from Debian, with the same
name and the same programs. It proves our steps, user, health check and command, not the official
image.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.hermes import REPOSITORY
from tests.real.waiting import wait_until

BASE_NAME = "python:3.13-slim"
SUITE = "trixie"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates,systemd,systemd-sysv,dbus"
_CACHED = REPOSITORY / ".cache" / "base-image.tar"
_CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")


class Engine:
    """A running daemon, and the `docker` program that talks to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.socket = folder / "docker.sock"

    def docker(self, *words: str | Path, into: Path | None = None) -> str:
        """Run a command to its end and return what it says."""
        with into.open("rb") if into else tempfile.TemporaryFile() as stdin:
            done = subprocess.run(
                ["docker", *words],
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self._folder),
                    "DOCKER_HOST": f"unix://{self.socket}",
                    "DOCKER_BUILDKIT": "0",
                },
                stdin=stdin,
                capture_output=True,
                text=True,
                timeout=600,
            )
        if done.returncode != 0:
            raise AssertionError(f"docker {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
        return done.stdout

    def build(self, tag: str, *words: str) -> None:
        self.docker("build", "--network", "host", "--tag", tag, *words, REPOSITORY)

    def inspect(self, name: str) -> Any:
        return json.loads(self.docker("inspect", name))[0]

    @contextmanager
    def container(
        self, image: str, options: Sequence[str] = (), command: Sequence[str] = ()
    ) -> Iterator[str]:
        """Run a container beside the test, on the host's network; its id."""
        name = self.docker("run", "--detach", "--network", "host", *options, image, *command)
        name = name.strip()
        try:
            yield name
        finally:
            self.docker("rm", "--force", "--volumes", name)

    def logs(self, name: str) -> str:
        return self.docker("logs", name)


@contextmanager
def engine() -> Iterator[Engine]:
    """Start a daemon that touches nothing of the host's own, and take all of it away again."""
    with tempfile.TemporaryDirectory(prefix="engine-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        running = Engine(folder)
        log = folder / "log"
        with (
            log.open("w") as output,
            subprocess.Popen(
                [
                    *("dockerd", "--host", f"unix://{running.socket}"),
                    *("--data-root", folder / "data", "--exec-root", folder / "exec"),
                    *("--pidfile", folder / "pid", "--storage-driver", "overlay2"),
                    *("--bridge", "none", "--iptables=false", "--ip6tables=false"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            ) as process,
        ):
            try:
                wait_until(lambda: _answers(running, process, log), "the engine answers")
                yield running
            finally:
                process.terminate()
                process.wait(timeout=60)
                namespace = folder / "exec" / "netns" / "default"
                if namespace.exists():  # else the folder could not be removed
                    subprocess.run(["umount", "--lazy", namespace], check=False)


def _answers(running: Engine, process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        raise AssertionError(f"dockerd ended with {process.returncode}\n{log.read_text()}")
    try:
        return running.docker("version") != ""
    except AssertionError:
        return False


def import_base_image(running: Engine) -> None:
    """Give the engine what the Dockerfile starts from."""
    running.docker("import", "-", BASE_NAME, into=base_image())


def base_image() -> Path:
    """The stand-in as an archive; made once, which takes a minute or two."""
    if not _CACHED.exists():
        with tempfile.TemporaryDirectory(prefix="base-image-") as name:
            root = Path(name) / "root"
            bootstrap(root, PACKAGES)
            for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
                marker.unlink()
            unfinished = _CACHED.with_suffix(f".{os.getpid()}")
            subprocess.run(["tar", "-C", root, "-cf", unfinished, "."], check=True)
            unfinished.rename(_CACHED)
    return _CACHED


def bootstrap(root: Path, packages: str, suite: str = SUITE) -> None:
    """A small Debian below `root`, which trusts the certificates that this host trusts."""
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", suite, root],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    trusted = Path("/") / _CERTIFICATES
    if trusted.exists():
        (root / _CERTIFICATES).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(trusted, root / _CERTIFICATES)
