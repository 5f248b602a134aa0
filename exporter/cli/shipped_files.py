"""The files that an operator installs beside the program: dashboards, rules, runbooks, units.

A wheel has them in `exporter/files` (`setup.py` puts them there); a checkout has them where they
are written. Only the standard library is imported, because `setup.py` reads this table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOLDERS: Final = {
    "alertmanager": "dashboards/alertmanager/*",
    "completion": "deploy/completion/*",
    "dashboards": "dashboards/grafana/*.json",
    "docs": "docs/*.md",
    "launchd": "deploy/launchd/*",
    "man": "deploy/man/*",
    "prometheus": "deploy/prometheus/*.yml",
    "rules": "dashboards/rules/*.yaml",
    "runbooks": "dashboards/runbooks/*.md",
    "systemd": "deploy/systemd/*",
    "systemd/user": "deploy/systemd/user/*",
}
"""Where each folder of files is taken from, in the repository."""
_PACKAGE: Final = Path(__file__).resolve().parent.parent
INSTALLED: Final = _PACKAGE / "files"
_REPOSITORY: Final = _PACKAGE.parent


def sources(repository: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name of each file, and where it is in a repository."""
    for folder, pattern in FOLDERS.items():
        for path in sorted(repository.glob(pattern)):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                yield f"{folder}/{path.name}", path


def shipped() -> dict[str, Path]:
    """Return every file by its name."""
    if INSTALLED.is_dir():
        found = sorted(path for path in INSTALLED.rglob("*") if path.is_file())
        return {str(path.relative_to(INSTALLED)): path for path in found}
    return dict(sorted(sources(_REPOSITORY)))
