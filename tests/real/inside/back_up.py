"""Backs a home up in every way that the release knows; the answer is what each of them holds."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import zipfile
from argparse import Namespace
from pathlib import Path

from hermes_cli import backup  # type: ignore[import-not-found]


def main() -> None:
    request = json.load(sys.stdin)
    home = Path(request["home"])
    by_hand = home.parent / f"{home.name}-backup.zip"
    with contextlib.redirect_stdout(io.StringIO()):
        backup.run_backup(Namespace(output=str(by_hand)))
        before_update = backup.create_pre_update_backup(hermes_home=home)
        snapshot = backup.create_quick_snapshot(hermes_home=home)
    taken = home / "state-snapshots" / str(snapshot)
    answer = {
        "by_hand": zipfile.ZipFile(by_hand).namelist(),
        "before_update": zipfile.ZipFile(before_update).namelist(),
        "snapshot": [str(path.relative_to(taken)) for path in taken.rglob("*")],
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
