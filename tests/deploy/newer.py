"""Programs of a newer Debian release, unpacked beside the host's own, which stays as it is."""

from __future__ import annotations

import os
import platform
import re
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
        sources.write_text(f"deb [signed-by={_KEYS}] {_mirror()} {suite} main\n")
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


def _mirror() -> str:
    """Where this host gets its own release of Debian from."""
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    listed = subprocess.run(
        ["apt-get", "update", "--print-uris"], check=True, capture_output=True, text=True
    ).stdout
    found = re.search(rf"'(\S+)/dists/{release}/InRelease'", listed)
    assert found is not None, listed
    return found[1]
