"""Installs the real hermes-agent releases under .cache/hermes; `python -m tests.real.install`.

Each release goes into a folder of its own without dependencies; one virtual environment holds the
dependencies of the newest, which serve the older ones too. A folder counts as installed only once
its stamp is written, so that an interrupted run leaves nothing that looks finished.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.real.hermes import (
    CACHE,
    NEWEST,
    REPOSITORY,
    VERSIONS,
    dependencies_python,
    release_folder,
)

STAMP = ".installed"
EXTRAS = ("aiohttp==3.14.5", "agent-client-protocol==0.9.0")
"""For the gateway's API server and for the editor integration; both are optional in Hermes."""


def main() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        # A second run waits for the first, then finds everything in place.
        fcntl.flock(lock, fcntl.LOCK_EX)
        install_dependencies()
        for version in VERSIONS:
            install_release(version)


def install_dependencies() -> None:
    """Make the environment that all releases run in: the newest one's, without the release itself.

    Were it left there, an older release would find the newer one's modules where it has none.
    """
    folder = dependencies_python().parents[1]
    interpreter = interpreter_for_hermes()
    # The real path: working copies that share a cache have environments of their own.
    fingerprint = f"{os.path.realpath(interpreter)} {NEWEST} {' '.join(EXTRAS)}"
    if is_installed(folder, fingerprint):
        return
    print(f"hermes: installing the dependencies of hermes-agent {NEWEST}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([interpreter, "-m", "venv", folder], check=True)
    pip("install", f"hermes-agent=={NEWEST}", *EXTRAS)
    pip("uninstall", "--yes", "hermes-agent")
    mark_installed(folder, fingerprint)


def install_release(version: str) -> None:
    """Unpack one release, without its dependencies, into its own folder."""
    folder = release_folder(version)
    if is_installed(folder, version):
        return
    print(f"hermes: installing hermes-agent {version}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    pip("install", "--no-deps", "--no-compile", "--target", folder, f"hermes-agent=={version}")
    mark_installed(folder, version)


def interpreter_for_hermes() -> str:
    """This interpreter, or an older one where it is newer than hermes-agent allows."""
    if sys.version_info < (3, 14):
        return sys.executable
    script = REPOSITORY / "scripts" / "find-python.sh"
    return subprocess.check_output([script, "14"], text=True).strip()


def pip(*arguments: Path | str) -> None:
    options = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([dependencies_python(), *options, *arguments], check=True)


def is_installed(folder: Path, fingerprint: str) -> bool:
    try:
        return (folder / STAMP).read_text() == fingerprint
    except FileNotFoundError:
        return False


def mark_installed(folder: Path, fingerprint: str) -> None:
    """Written last: its presence says that all the rest is there."""
    (folder / STAMP).write_text(fingerprint)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: could not install hermes-agent for the tests: {error}")
