"""Words for people: text made safe to show, and the word that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


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
