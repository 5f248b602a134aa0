"""Structured log lines on stderr: a fixed phrase and fields, as logfmt or JSON.

    ts=2026-01-31T09:30:00.125Z level=info component=agent msg="home appeared" home=default

A field never holds content of a conversation. Every value stays on its line: quotes, line breaks,
control characters and invalid UTF-8 are escaped.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

from exporter.text import escape_control, shortened

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
FORMATS: Final = ("logfmt", "json")
LONGEST_VALUE = 2000

_ROOT = "exporter"
_NAMES = {number: name for name, number in LEVELS.items()}
_RESERVED = ("ts", "level", "component", "msg")

Value = str | int | float | bool | None


class Log:
    """The log of one component."""

    def __init__(self, component: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{component}")

    def debug(self, phrase: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, phrase, fields)

    def info(self, phrase: str, /, **fields: object) -> None:
        self._write(logging.INFO, phrase, fields)

    def warn(self, phrase: str, /, **fields: object) -> None:
        self._write(logging.WARNING, phrase, fields)

    def error(self, phrase: str, /, **fields: object) -> None:
        self._write(logging.ERROR, phrase, fields)

    def _write(self, level: int, phrase: str, fields: Mapping[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, phrase, extra={"fields": fields})


class StateChange:
    """Remembers the last state of each thing, so that only changes are logged, not every poll."""

    def __init__(self) -> None:
        self._last: dict[Hashable, Hashable] = {}

    def changed(self, thing: Hashable, state: Hashable, *, assumed: Hashable = None) -> bool:
        """True if the thing's last state differs; before the first call that is `assumed`."""
        last = self._last.get(thing, assumed)
        self._last[thing] = state
        return last != state

    def forget(self, thing: Hashable) -> None:
        """Drop a thing that is gone; if it returns, it counts as new."""
        self._last.pop(thing, None)


class LogQuota:
    """A limit on lines per time: other users' actions must not fill the log."""

    def __init__(
        self, lines: int, seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._lines = lines
        self._seconds = seconds
        self._monotonic = monotonic
        self._told: deque[float] = deque()

    def take(self) -> bool:
        """True if one more line may be written now."""
        now = self._monotonic()
        while self._told and now - self._told[0] >= self._seconds:
            self._told.popleft()
        if len(self._told) >= self._lines:
            return False
        self._told.append(now)
        return True


def get(component: str) -> Log:
    return Log(component)


def setup(level: str = "info", format: str = "logfmt", stream: TextIO | None = None) -> None:  # noqa: A002 - named as the flag is
    """Send all log lines of the process, including those of libraries, to stderr."""
    logging.raiseExceptions = False  # a closed stderr must not become a traceback
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if format == "json" else _LogfmtFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(LEVELS[level], logging.WARNING))
    logging.getLogger(_ROOT).setLevel(LEVELS[level])
    logging.captureWarnings(True)


def _entry(record: logging.LogRecord) -> dict[str, Value]:
    """Return the fields of a line, in order."""
    fields: Mapping[str, object] = getattr(record, "fields", {})
    moment = datetime.fromtimestamp(record.created, UTC)
    entry: dict[str, Value] = {
        "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": _NAMES.get(record.levelno, record.levelname.lower()),
        "component": record.name.removeprefix(f"{_ROOT}."),
        "msg": _value(record.getMessage()),
    }
    for name, value in fields.items():
        entry[f"{name}_" if name in _RESERVED else name] = _value(value)
    if record.exc_info and record.exc_info[0]:
        lines = traceback.format_exception(*record.exc_info)
        entry["error"] = _value(lines[-1].strip())
        if logging.getLogger(_ROOT).isEnabledFor(logging.DEBUG):
            entry["traceback"] = _value("".join(lines))
    return entry


def _value(value: object) -> Value:
    """Return numbers and booleans unchanged, anything else as safe, bounded text.

    The text has no lone surrogates.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no NaN and no infinity
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return shortened(text.encode("utf-8", "backslashreplace").decode(), LONGEST_VALUE)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_entry(record), separators=(",", ":"))


class _LogfmtFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={_logfmt(value)}" for name, value in _entry(record).items())


def _logfmt(value: Value) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if value and value.isprintable() and not any(mark in value for mark in ' ="\\'):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escape_control(escaped)}"'
