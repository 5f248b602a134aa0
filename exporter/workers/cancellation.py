"""A request to stop a run at its next safe point, from any thread or from a signal handler."""

from __future__ import annotations

import os


class Cancellation:
    """Wakes the call that waits for a worker; the call then tells the worker."""

    def __init__(self) -> None:
        self._wake_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self.requested = False

    def request(self) -> None:
        self.requested = True
        try:
            os.write(self._write_end, b".")
        except BlockingIOError:
            pass  # it was requested so often that the pipe is full

    def fileno(self) -> int:
        """Readable once it was requested, and from then on."""
        return self._wake_end

    def close(self) -> None:
        os.close(self._wake_end)
        os.close(self._write_end)
