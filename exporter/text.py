"""Text and numbers for people: made safe to show, and in units that are easy to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def visible(text: str) -> str:
    """Escape every character that a terminal or a log reader could act on instead of show.

    Control characters, bidirectional overrides, line separators and the lone surrogates that stand
    for invalid UTF-8 come out as `\\n`, `\\x1b`, `\\u202e`: a hostile name stays one harmless line.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning and an ellipsis when it is longer than `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def cut(text: str, limit: int) -> str:
    """At most so many characters of a text: what a field of a message or of the journal holds."""
    return text[:limit]


def quoted(text: str) -> str:
    """The text in quotes as an error line shows it: visible, and cut where it would flood."""
    return f"'{shortened(visible(text), 60)}'"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was probably meant to be; None when nothing is close."""
    import difflib  # only a mistake needs it, and a start-up should not wait for it

    by_lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def listed(words: Iterable[str], conjunction: str = "or") -> str:
    """`a, b or c`."""
    *rest, last = words
    return f"{', '.join(rest)} {conjunction} {last}" if rest else last


_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_PIDS_MAX = 12
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def format_size(size_bytes: float) -> str:
    """`0 B`, `512 B`, `1.5 GiB`."""
    amount = float(size_bytes)
    for unit in _SIZES[:-1]:
        if abs(amount) < 1023.95:  # what would be rounded to 1024.0 belongs to the next unit
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_SIZES[-1]}"


def format_age(seconds: float) -> str:
    """`42s`, `12m`, `3h 5m`, `12d 3h`, `90d`; `future` for what is yet to come."""
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


def format_percent(ratio: float) -> str:
    """`90%`, `97.5%`."""
    return f"{ratio * 100:.1f}".removesuffix(".0") + "%"


def format_count(number: int) -> str:
    """`12,000`."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """`1 home`, `2 homes`, `12,000 homes`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_pids(pids: Sequence[int]) -> str:
    """`process 7`, `processes 7, 8`; of very many the first."""
    some = ", ".join(str(pid) for pid in pids[:_PIDS_MAX])
    more = f" and {len(pids) - _PIDS_MAX:,} more" if len(pids) > _PIDS_MAX else ""
    return f"process {some}" if len(pids) == 1 else f"processes {some}{more}"


def _two(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}" + (f" {minor}{minor_unit}" if minor else "")
