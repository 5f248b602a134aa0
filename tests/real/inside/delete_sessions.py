"""Deletes sessions as Hermes itself does when it is told to, or prunes by itself."""

from __future__ import annotations

import json
import sys

from hermes_state import SessionDB  # type: ignore[import-not-found]


def main() -> None:
    request = json.load(sys.stdin)
    database = SessionDB()
    deleted = [name for name in request["sessions"] if database.delete_session(name)]
    database.close()
    json.dump(deleted, sys.stdout)


if __name__ == "__main__":
    main()
