"""A process of this release that holds state.db open and does as it is told.

It speaks JSON lines: one `{"do": ..., ...}` in, one answer out, after a first line that says it is
ready. When its input ends it closes the database as Hermes does and leaves.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from hermes_state import SessionDB  # type: ignore[import-not-found]

from tests.real.inside.make_files import make_lease


class Holder:
    """What can be asked of it: every public method is a command."""

    def __init__(self) -> None:
        self._database = SessionDB()
        self._writer: threading.Thread | None = None
        self._stop = threading.Event()
        self._written = 0
        self._failure = ""

    def create(self, session: str, source: str = "cli") -> None:
        self._database.create_session(session, source, model="large-1")

    def append(self, session: str, role: str = "user", text: str = "hello", count: int = 1) -> None:
        for _ in range(count):
            self._database.append_message(session, role, text)

    def end(self, session: str, reason: str = "cli_close") -> None:
        self._database.end_session(session, reason)

    def count(self, session: str) -> int:
        """How many messages this process sees in a session."""
        return int(self._database.message_count(session))

    def start_writing(self, session: str) -> None:
        """Append to a session until told to stop, as fast as SessionDB does."""
        self._stop.clear()
        self._writer = threading.Thread(target=self._write, args=(session,), daemon=True)
        self._writer.start()

    def stop_writing(self) -> dict[str, Any]:
        self._stop.set()
        if self._writer is not None:
            self._writer.join()
        return {"written": self._written, "failure": self._failure}

    def lose_database_lock(self) -> None:
        """Open and close state.db as a plain file: POSIX drops this process's locks on it."""
        self._open_and_close("state.db")

    def lose_shm_lock(self) -> None:
        """Open and close state.db-shm as a plain file: POSIX drops this process's locks on it."""
        self._open_and_close("state.db-shm")

    def lease(self, session: str) -> bool:
        return make_lease(session)

    def become_gateway(self) -> None:
        """Write the files of a running gateway and hold its lock."""
        from gateway import status  # type: ignore[import-not-found]

        status.get_running_pid()  # as the gateway does at start: clears what a dead one left
        status.acquire_gateway_runtime_lock()
        status.write_pid_file()
        status.write_runtime_status(gateway_state="running")
        if hasattr(status, "record_start_and_check_storm"):
            status.record_start_and_check_storm()

    def leave(self) -> None:
        """Go at once, without closing anything."""
        os._exit(0)

    def _write(self, session: str) -> None:
        while not self._stop.is_set():
            try:
                self._database.append_message(session, "user", f"message {self._written}")
            except Exception as error:  # noqa: BLE001 - reported to the test that asked for it
                self._failure = f"{type(error).__name__}: {error}"
                return
            self._written += 1

    def _open_and_close(self, name: str) -> None:
        with open(os.path.join(os.environ["HERMES_HOME"], name), "rb") as file:
            file.read(1)

    def _close(self) -> None:
        self.stop_writing()
        self._database.close()


def main() -> None:
    holder = Holder()
    _answer(os.getpid())
    for line in sys.stdin:
        request = json.loads(line)
        command = request.pop("do")
        if command.startswith("_"):
            raise SystemExit(f"no such command: {command}")
        _answer(getattr(holder, command)(**request))
    holder._close()


def _answer(value: Any) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
