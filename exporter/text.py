"""Text and numbers for people: safe to show, and in units that are easy to read."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence


def escape_control(text: str) -> str:
    """Escape every character that a terminal or a log reader could act on instead of showing it.

    Control characters, bidirectional overrides, line separators, and the lone surrogates that stand
    for invalid UTF-8 become `\\n`, `\\x1b`, `\\u202e`. So a hostile name stays one harmless line.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


def shortened(text: str, limit: int) -> str:
    """Return the text; if it is longer than `limit` characters, its beginning and an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def cut(text: str, limit: int) -> str:
    """Return at most `limit` characters: the fields of messages and of the journal are limited."""
    return text[:limit]


def quoted(text: str) -> str:
    """Return the text in quotes for an error line: escaped, and cut if it is long."""
    return f"'{shortened(escape_control(text), 60)}'"


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` was probably meant to be; None if none is close."""
    import difflib  # slow to import, and only a mistake needs it

    by_lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def suggestion(word: str, known: Collection[str]) -> str:
    """Return `did you mean 'a'?`, or `use a, b or c` if no known word is close."""
    meant = closest_match(word, known)
    return f"did you mean '{meant}'?" if meant else f"use {join_words(known)}"


def join_words(words: Iterable[str], conjunction: str = "or") -> str:
    """Return `a, b or c`."""
    *rest, last = words
    return f"{', '.join(rest)} {conjunction} {last}" if rest else last


_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_PIDS_MAX = 12
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def format_size(size_bytes: float) -> str:
    """Return `0 B`, `512 B`, `1.5 GiB`."""
    amount = float(size_bytes)
    for unit in _SIZES[:-1]:
        # a value that would be rounded to 1024.0 belongs to the next unit
        if abs(amount) < 1023.95:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_SIZES[-1]}"


def format_age(seconds: float) -> str:
    """Return `42s`, `12m`, `3h 5m`, `12d 3h`, `90d`; `future` for a negative age."""
    if seconds < 0:
        return "future"
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < _DAY:
        return _two(whole // _HOUR, "h", whole % _HOUR // _MINUTE, "m")
    if whole < 60 * _DAY:
        return _two(whole // _DAY, "d", whole % _DAY // _HOUR, "h")
    return f"{whole // _DAY}d"


def format_time(timestamp: float) -> str:
    """Return a moment in local time: `2026-03-01 04:05`."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(timestamp))


def format_percent(ratio: float) -> str:
    """Return `90%`, `97.5%`."""
    return f"{ratio * 100:.1f}".removesuffix(".0") + "%"


def format_count(number: int) -> str:
    """Return `12,000`."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """Return `1 home`, `2 homes`, `12,000 homes`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_pids(pids: Sequence[int]) -> str:
    """Return `process 7` or `processes 7, 8`; of very many only the first."""
    some = ", ".join(str(pid) for pid in pids[:_PIDS_MAX])
    more = f" and {len(pids) - _PIDS_MAX:,} more" if len(pids) > _PIDS_MAX else ""
    return f"process {some}" if len(pids) == 1 else f"processes {some}{more}"


def _two(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}" + (f" {minor}{minor_unit}" if minor else "")
