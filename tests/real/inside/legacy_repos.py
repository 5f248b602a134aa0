"""Makes shadow repos of projects as Hermes did before 0.13."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from tests.real.inside.make_checkpoints import legacy_repository


def main() -> None:
    """Give each of the folders so many files, and take a snapshot of it."""
    request = json.load(sys.stdin)
    for folder in map(Path, request["folders"]):
        folder.mkdir(parents=True)
        for number in range(request["files"]):
            name = hashlib.sha256(f"{folder} {number}".encode()).hexdigest()
            (folder / f"{number}.txt").write_text(name * 8)
        legacy_repository(Path(request["home"]) / "checkpoints", folder)
    json.dump(len(request["folders"]), sys.stdout)


if __name__ == "__main__":
    main()
