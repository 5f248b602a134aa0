"""A program on a terminal of its own, as a person would run it."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.real.waiting import wait_until

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x09\x0b-\x1f]")
_BEGUN = re.compile(r"\x1b(\[[0-?]*[ -/]*)?$")
"""A control sequence of which the end has not come yet."""
_WHERE_IS_THE_CURSOR = b"\x1b[6n"
_BRACKETED_PASTE = "\x1b[?2004h"
"""What a line editor asks for when it begins."""
_ROWS_AND_COLUMNS = (50, 200)
PATIENCE_SECONDS = 120.0
"""Hermes takes seconds to start, and many of them where it shares the machine."""


class Terminal:
    """What a person has: a screen to read, keys to press, and the power to kill."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self._screen = screen
        self.output = ""
        """All that it has shown so far, without colours and cursor movements."""
        self.raw = ""
        """The same with them."""
        self.takes_input = False
        """Whether a line editor has begun to read."""
        self._unread = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._orphans: list[psutil.Process] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, line: str) -> None:
        """Type a line and press Enter."""
        os.write(self._screen, line.encode() + b"\r")

    def press(self, keys: str) -> None:
        """Press keys, without Enter."""
        os.write(self._screen, keys.encode())

    def modes(self) -> int:
        """Return the local modes of the terminal: echo, whole lines and so on."""
        return int(termios.tcgetattr(self._screen)[3])

    def wait_for(self, text: str, times: int = 1) -> None:
        """Return when the text has been shown so often."""
        self.wait_until_shown(lambda: self.output.count(text) >= times, f"{text!r} is shown")

    def wait_until_shown(self, condition: Callable[[], bool], what: str) -> None:
        """Return when the condition holds of what is shown; fail if the program ends before."""

        def holds() -> bool:
            if condition():
                return True
            if self.process.poll() is not None:
                raise AssertionError(f"{what}: ended with {self.process.returncode}")
            return False

        try:
            wait_until(holds, what, PATIENCE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output[-3000:]}") from None

    def wait_for_end(self) -> None:
        """Return when all that an ended program has shown was read."""
        self._reader.join()

    def descendants(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """SIGKILL to it alone, as the kernel does when memory is short; wait until it is gone.

        What it had started lives on until the end of the test.
        """
        self._orphans += self.descendants()
        self.process.kill()
        self.process.wait()

    def hang_up(self) -> None:
        """What happens when the window is closed."""
        self.process.send_signal(signal.SIGHUP)
        self.process.wait(timeout=120)

    def close(self) -> None:
        """Leave nothing running."""
        if self.process.poll() is None:
            self.kill()
        for orphan in self._orphans:
            try:
                orphan.kill()
            except psutil.NoSuchProcess:
                continue
        self._reader.join()
        os.close(self._screen)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._screen, 1 << 16)
            except OSError:  # the last process on this terminal has gone
                return
            if _WHERE_IS_THE_CURSOR in data:
                os.write(self._screen, b"\x1b[1;1R")
            self._show(self._unread + self._decoder.decode(data))

    def _show(self, text: str) -> None:
        self.raw += text.removeprefix(self._unread)
        begun = _BEGUN.search(text)
        self._unread = begun[0] if begun else ""
        self.output += _CONTROL.sub("", text.removesuffix(self._unread))
        self.takes_input = self.takes_input or _BRACKETED_PASTE in text


@contextmanager
def terminal(
    command: Sequence[str | Path],
    environment: dict[str, str],
    folder: Path,
    size: tuple[int, int] = _ROWS_AND_COLUMNS,
) -> Iterator[Terminal]:
    """Run the command in `folder`, in a session of its own; `size` is in rows and columns."""
    screen, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    try:
        process = subprocess.Popen(
            command,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**environment, "TERM": "xterm-256color"},
            cwd=folder,
            start_new_session=True,
        )
    except BaseException:
        os.close(screen)
        raise
    finally:
        os.close(inside)
    running = Terminal(process, screen)
    try:
        yield running
    finally:
        running.close()
