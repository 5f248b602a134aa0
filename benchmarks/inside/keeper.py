"""A Hermes process that prunes by itself, or continues to write while others prune.

Each line of input is a JSON object with what to `do`, each answer a line of output. When its input
ends, it closes the database as Hermes does.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from hermes_state import SessionDB  # type: ignore[import-not-found]

_TEXT = "an invented message of ordinary length, with a few words to index "


class Keeper:
    """Every public method is a command."""

    def __init__(self) -> None:
        self._database = SessionDB()
        # As shipped, Hermes merges its whole text index every 1,000 writes, for seconds.
        self._database._OPTIMIZE_EVERY_N_WRITES = sys.maxsize  # noqa: SLF001 - it has no setting
        self._stop = threading.Event()
        self._waits: list[float] = []
        self._failures: list[str] = []
        self._thread: threading.Thread | None = None

    def prune(self, end_reason: str) -> dict[str, Any]:
        """Run Hermes's own prune of all sessions with this end reason: one transaction."""
        began = time.perf_counter()
        deleted = self._database.prune_sessions(older_than_days=None, end_reason=end_reason)
        return {"deleted": deleted, "seconds": time.perf_counter() - began}

    def end(self, sessions: list[str]) -> float:
        """End sessions one by one; return the seconds that took."""
        began = time.perf_counter()
        for session in sessions:
            self._database.end_session(session, "reaped")
        return time.perf_counter() - began

    def start(self, session: str) -> None:
        """Append to a new session, with short pauses, until `stop`."""
        self._database.create_session(session, "cli")
        self._stop.clear()
        self._waits, self._failures = [], []
        self._thread = threading.Thread(target=self._write, args=(session,), daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """Return how long each message took, and the errors."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        return {"waits": self._waits, "failures": self._failures}

    def _write(self, session: str) -> None:
        while not self._stop.wait(0.005):
            began = time.perf_counter()
            try:
                self._database.append_message(session, "user", _TEXT * 6)
            except Exception as error:  # noqa: BLE001 - reported to the caller of stop
                self._failures.append(str(error))
            self._waits.append(time.perf_counter() - began)

    def close(self) -> None:
        self._database.close()


def main() -> None:
    keeper = Keeper()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(keeper, request.pop("do"))(**request)), flush=True)
    keeper.close()


if __name__ == "__main__":
    main()
