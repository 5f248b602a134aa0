"""Programs of a newer Debian release, unpacked beside the host's own, which stays as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.real.hermes import REPOSITORY

_CACHE = REPOSITORY / ".cache" / "debian"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def unpacked(suite: str, package: str) -> Path:
    """The folder with the files of a package, fetched when it is not there yet."""
    folder = _CACHE / suite / package
    if not folder.exists():
        work = _CACHE / suite / f"{package}.{os.getpid()}"
        for name in ("lists/partial", "archives/partial", "files"):
            (work / name).mkdir(parents=True)
        sources = work / "sources.list"
        sources.write_text(f"deb [signed-by={_KEYS}] http://deb.debian.org/debian {suite} main\n")
        options = [
            *("-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=/dev/null"),
            *("-o", f"Dir::State::lists={work}/lists", "-o", "APT::Sandbox::User=root"),
        ]
        for words in (["update"], ["download", package]):
            subprocess.run(["apt-get", "-qq", *options, *words], cwd=work, check=True)
        (archive,) = work.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, work / "files"], check=True)
        try:
            (work / "files").rename(folder)
        except OSError:  # another process was faster
            assert folder.exists()
        shutil.rmtree(work)
    return folder
