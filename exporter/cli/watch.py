"""`status --watch`: the report drawn again every few seconds, in place, until `q` or Ctrl-C."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from exporter.agent.options import Options
from exporter.cli import output, scan_notice
from exporter.cli.connect import alone, ask_quietly, tell_once
from exporter.cli.render import rich_text, sparkline, status
from exporter.cli.render.blocks import Block, Cell, Line, Tone
from exporter.errors import UsageError
from exporter.text import format_age

_SECONDS: Final = 2.0
_TREND_SECONDS: Final = 60.0
_POINTS_MAX: Final = 720
_QUIT: Final = (b"q", b"Q", b"\x03", b"\x04")
"""`q`, and what Ctrl-C and Ctrl-D are where the terminal makes no signal of them."""


def watch(options: Options) -> None:
    """Show the homes until the person ends it; raise UsageError without a terminal."""
    if sys.stdout is None or not output.is_terminal(sys.stdout, os.environ):
        raise UsageError("--watch draws on a terminal, and this is none")
    with ExitStack() as stack:
        source = _Source(options, stack)
        frame = source.next()  # what has to be said about the agent is said before the screen
        console = Console(highlight=False, markup=False, emoji=False, no_color=_is_plain())
        keys = stack.enter_context(_keys())
        live = stack.enter_context(
            Live(
                console=console,
                screen=True,
                auto_refresh=False,
                redirect_stdout=False,  # it would hide what the terminal can show
                redirect_stderr=False,
            )
        )
        stack.enter_context(_ended_by_signals())
        try:
            while True:
                live.update(_fitted(frame, console), refresh=True)
                if keys(_SECONDS):
                    return
                frame = source.next()
        except KeyboardInterrupt:
            return


class _Source:
    """The reports: of an agent, or of scans by this process."""

    def __init__(self, options: Options, stack: ExitStack) -> None:
        self._options = options
        self._stack = stack
        self._scan: Callable[[], dict[str, Any]] | None = None
        self._trends: dict[str, Any] = {"homes": []}
        self._trends_at = -_TREND_SECONDS
        self._seen: dict[str, dict[str, Any]] = {}

    def next(self) -> list[Block]:
        """Return what to draw now."""
        now = time.time()
        reply = ask_quietly(self._options, "status")
        if reply is not None:
            report, age = reply.result, now - reply.seen_at
            said = f"as the agent saw it {format_age(max(0.0, age))} ago"
        else:
            tell_once(self._options.config_note)
            report, said = self._scanned(), "scanned without an agent"
        scan_notice.clear()
        self._remember(report, now)
        trends = self._agent_trends() if reply is not None else self._own_trends()
        head = Line((Cell(f"{said}; q ends it", Tone.FAINT),))
        ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
        moved = sparkline.blocks(trends, now, ascii_only=ascii_only)
        return [head, Line(), *status.blocks(report), Line(), *moved]

    def _scanned(self) -> dict[str, Any]:
        if self._scan is None:
            self._scan = self._stack.enter_context(alone(self._options)).status
        return self._scan()

    def _agent_trends(self) -> dict[str, Any]:
        """Return the agent's points; if it has too few of them, those that were seen here."""
        if time.monotonic() - self._trends_at >= _TREND_SECONDS:
            self._trends_at = time.monotonic()
            reply = ask_quietly(self._options, "trends")
            self._trends = reply.result if reply is not None else self._trends
        own = self._own_trends()
        seen = {home["home"]: home for home in own["homes"]}
        kept = [
            home if len(home["at"]) > 1 else seen.get(home["home"], home)
            for home in self._trends["homes"]
        ]
        return {"homes": kept} if kept else own

    def _own_trends(self) -> dict[str, Any]:
        return {"homes": list(self._seen.values())}

    def _remember(self, report: Mapping[str, Any], now: float) -> None:
        for home in report["homes"]:
            if not home["up"]:
                continue
            points = self._seen.setdefault(
                home["home"],
                {"home": home["home"], "at": [], "open": [], "dead": [], "disk": {"all": []}},
            )
            points["at"].append(now)
            points["open"].append(home["sessions"]["open"] or 0)
            points["dead"].append((home["verdicts"] or {}).get("dead", 0))
            points["disk"]["all"].append(sum((home["disk"] or {}).values()))
            for kept in (points["at"], points["open"], points["dead"], points["disk"]["all"]):
                del kept[:-_POINTS_MAX]


def _fitted(frame: list[Block], console: Console) -> Text:
    """Return the report as wide and as high as the terminal."""
    plain = _is_plain()
    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    text = rich_text.render(frame, console.width, ascii_only=ascii_only, colour=not plain)
    lines = text.splitlines()
    if len(lines) > console.height:
        more = len(lines) - console.height + 1
        lines = [*lines[: console.height - 1], f"({more} more lines than this terminal has)"]
    return Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop")


def _is_plain() -> bool:
    return not output.wants_colour(sys.stdout, os.environ)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits, and returns True if the person wants to end it."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield _no_key
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def wait(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([keyboard], [], [], left)[0]:
                pressed = os.read(keyboard, 1)
                if not pressed or pressed in _QUIT:
                    return True
        return False

    try:
        tty.setcbreak(keyboard)  # keys come at once and are not shown; Ctrl-C stays a signal
        yield wait
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End in order, with the terminal as it was, also when the process is told to end."""

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
