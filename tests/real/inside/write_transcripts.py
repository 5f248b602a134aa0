"""Writes transcripts and request dumps of many sessions, by the agent's own writers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.real.inside.make_files import make_transcripts


def main() -> None:
    request = json.load(sys.stdin)
    home = Path(request["home"])
    made = make_transcripts(home, request["sessions"], request["dumped"], request["characters"])
    json.dump(made, sys.stdout)


if __name__ == "__main__":
    main()
