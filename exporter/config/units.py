"""The forms of a value in the configuration, and the explanation of a wrong one.

Each `Unit` turns the text of a YAML scalar into a value, or raises ValueError with the fix. It
reads the text as written, so YAML's own guesses (`off` is false, `1e3` is a number) do not matter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, TypeVar

from exporter.hermes.end_reasons import WRITTEN_BY_HERMES
from exporter.text import join_words, quoted, suggestion

T = TypeVar("T")
W = TypeVar("W", bound=str)

DURATION_UNITS: Mapping[str, Decimal] = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
SIZE_UNITS: Mapping[str, Decimal] = {
    "B": Decimal(1),
    "kB": Decimal(10**3),
    "KB": Decimal(10**3),
    "MB": Decimal(10**6),
    "GB": Decimal(10**9),
    "TB": Decimal(10**12),
    "KiB": Decimal(2**10),
    "MiB": Decimal(2**20),
    "GiB": Decimal(2**30),
    "TiB": Decimal(2**40),
}
LONGEST_DURATION = "36500d"
LARGEST_SIZE = "1048576TiB"
LARGEST_COUNT = 10**12

_NUMBER = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([^0-9.\s-]*)", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@/+-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Unit(Generic[T]):
    """A kind of value: its name for the reference page, and its parser."""

    name: str
    parse: Callable[[str], T]


def _split(text: str, expected: str) -> tuple[Decimal, str]:
    """Return the number, and the unit that follows it.

    0 and negative numbers are refused for every unit. In other programs a `0` has meant "never",
    "at once" and "down to zero bytes", and each of these has cost users their data.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"expected {expected}, found {quoted(text)}")
    number = Decimal(match[1])
    if number <= 0:
        raise ValueError("must not be negative" if number < 0 else "must be greater than 0")
    return number, match[2]


def _scale(unit: str, units: Mapping[str, Decimal]) -> Decimal:
    if unit not in units:
        raise ValueError(f"unknown unit {quoted(unit)}, {suggestion(unit, units)}")
    return units[unit]


def parse_duration(text: str) -> float:
    """Return the seconds of `50ms 90s 15m 24h 30d`."""
    number, unit = _split(text, "a duration, e.g. 15m")
    if not unit:
        raise ValueError(f"durations need a unit, e.g. {text}s or {text}m")
    seconds = number * _scale(unit, DURATION_UNITS)
    if seconds > 36500 * 86400:
        raise ValueError(f"must not be longer than {LONGEST_DURATION}")
    return float(seconds)


def parse_duration_or_off(text: str) -> float | None:
    """Return seconds, or None for the word off."""
    if text in ("off", "false"):
        return None
    return parse_duration(text)


def parse_size(text: str) -> int:
    """Return the bytes of `500MB` (powers of 1000) or `2GiB` (powers of 1024)."""
    number, unit = _split(text, "a size, e.g. 500MB")
    if not unit:
        raise ValueError("sizes need a unit, e.g. 500MB")
    size = int(number * _scale(unit, SIZE_UNITS))
    if size == 0:
        raise ValueError("must be at least 1B")
    if size > 2**60:
        raise ValueError(f"must not be larger than {LARGEST_SIZE}")
    return size


def parse_percent(text: str) -> float:
    """Return the ratio of a percentage: `10%` is 0.1."""
    number, unit = _split(text, "a percentage, e.g. 10%")
    if not unit:
        raise ValueError(f"percentages need a unit, e.g. {text}%")
    if unit != "%":
        raise ValueError(f"expected a percentage, e.g. 10%, found unit {quoted(unit)}")
    if number > 100:
        raise ValueError("must not be above 100%")
    return float(number / 100)


def parse_ratio(text: str) -> float:
    """Return a plain number above 0 and up to 1."""
    number, unit = _split(text, "a number between 0 and 1, e.g. 0.85")
    if unit:
        raise ValueError("ratios take no unit, e.g. 0.85")
    if number > 1:
        raise ValueError("must not be above 1")
    return float(number)


def parse_count(text: str) -> int:
    """Return a whole number, without a unit."""
    number, unit = _split(text, "a whole number, e.g. 100")
    if unit:
        raise ValueError(f"counts take no unit, e.g. {number:f}")
    if number != number.to_integral_value():
        raise ValueError("must be a whole number")
    if number > LARGEST_COUNT:
        raise ValueError(f"must not be above {LARGEST_COUNT}")
    return int(number)


def parse_switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"expected true or false, found {quoted(text)}")
    return text == "true"


def parse_word(text: str) -> str:
    """Return a short identifier, such as a source of sessions."""
    if _WORD.fullmatch(text) is None:
        raise ValueError(f"expected a short word of letters and digits, found {quoted(text)}")
    return text


def parse_end_reason(text: str) -> str:
    """Return a word that Hermes does not write: our ends must be told from its own."""
    if text in WRITTEN_BY_HERMES:
        raise ValueError(f"Hermes writes {quoted(text)} itself; choose another word, as `reaped`")
    return parse_word(text)


def parse_address(text: str) -> str:
    """Return the beginning of links, or an empty text."""
    if text and (not text.startswith(("http://", "https://")) or not text.isprintable()):
        raise ValueError('expected an address that begins with https:// or http://, or ""')
    return text


def parse_home_path(text: str) -> str:
    """Return an absolute path. Symlinks are not followed; the scan decides what is a home."""
    path = os.path.expanduser(text)
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError(f"expected an absolute path, e.g. ~/.hermes, found {quoted(text)}")
    if "**" in path:
        raise ValueError("** is not supported: * stands for one name, e.g. /home/*/.hermes")
    return os.path.normpath(path)


def parse_home_name(text: str) -> str:
    """Return a label value: short, and the same in a dashboard, a log line and a terminal."""
    if not text.isprintable() or text != text.strip() or not 1 <= len(text) <= 64:
        raise ValueError("expected 1 to 64 printable characters")
    return text


def choice(name: str, words: Iterable[W]) -> Unit[W]:
    """Return a unit that allows only the given words."""
    known = {str(word): word for word in words}

    def parse(text: str) -> W:
        if text in known:
            return known[text]
        raise ValueError(f"unknown {name} {quoted(text)}, {suggestion(text, known)}")

    return Unit(join_words(f"`{word}`" for word in known), parse)


def at_most(unit: Unit[float], limit: str) -> Unit[float]:
    """Return the same unit with an upper limit."""
    largest = unit.parse(limit)

    def parse(text: str) -> float:
        value = unit.parse(text)
        if value > largest:
            raise ValueError(f"must not be above {limit}")
        return value

    return Unit(f"{unit.name}, at most {limit}", parse)


DURATION = Unit("duration", parse_duration)
DURATION_OR_OFF = Unit("duration, or `off`", parse_duration_or_off)
SIZE = Unit("size", parse_size)
PERCENT = Unit("percentage", parse_percent)
RATIO = Unit("number up to 1", parse_ratio)
COUNT = Unit("count", parse_count)
SWITCH = Unit("`true` or `false`", parse_switch)
WORD = Unit("word", parse_word)
END_REASON = Unit("word", parse_end_reason)
ADDRESS = Unit("address", parse_address)
HOME_PATH = Unit("path", parse_home_path)
HOME_NAME = Unit("name", parse_home_name)
