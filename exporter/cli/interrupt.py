"""Ctrl-C while a command acts: the run stops at its next safe point, and the report says so.

Before a run has begun, Ctrl-C ends the command at once. During a run the first Ctrl-C (or SIGTERM,
or SIGHUP when the terminal is closed) asks the run to stop; a second one ends the command without
waiting, and the next command finds out what was done. One that comes when the run is over, but its
report is not printed yet, waits for the report.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import Final

from exporter.cli import scan_notice
from exporter.errors import InterruptedRunError
from exporter.workers.cancellation import Cancellation

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOPPING: Final = (
    b"\nhermes-exporter: stopping at the next safe point; Ctrl-C again ends it at once\n"
)


class Interrupts:
    """The signals that came while a command acted."""

    def __init__(self) -> None:
        self._signal = signal.SIGINT
        self._came_late = False
        self.has_acted = False

    @property
    def exit_status(self) -> int:
        """128 + the signal, as a shell reports it."""
        return 128 + self._signal

    @contextmanager
    def acting(self, run: str) -> Iterator[Cancellation]:
        """Take signals as a request to stop as long as a run goes on."""
        del run
        scan_notice.clear()
        self.has_acted = True
        with closing(Cancellation()) as cancellation:

            def stop(number: int, frame: FrameType | None) -> None:
                del frame
                if cancellation.requested:
                    raise KeyboardInterrupt
                self._signal = signal.Signals(number)
                cancellation.request()
                # Not by print: the signal may have come in the middle of one.
                with suppress(OSError):
                    os.write(2, _STOPPING)

            # What is ignored stays so: a command in the background, or under nohup, goes on.
            heeded = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
            for each in heeded:
                signal.signal(each, stop)
            try:
                yield cancellation
            finally:
                # Not the handlers of before: those would end the command without its report.
                for each in heeded:
                    signal.signal(each, self._wait_for_report)

    def _wait_for_report(self, number: int, frame: FrameType | None) -> None:
        """After the run: let the command print what was done, unless this is the second signal."""
        del number, frame
        if self._came_late:
            raise KeyboardInterrupt
        self._came_late = True


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Say what an immediate end means: nothing was done, or the next command finds out."""
    interrupts = Interrupts()
    try:
        yield interrupts
    except KeyboardInterrupt:
        if interrupts.has_acted:
            raise InterruptedRunError(
                "ended at once; the next command finds out what was done, "
                "and `hermes-exporter history` lists it"
            ) from None
        raise InterruptedRunError("interrupted; nothing was done") from None
