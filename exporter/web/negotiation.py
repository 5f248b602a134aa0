"""Which format of the metrics a scraper wants, by its Accept headers."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

_ESCAPINGS = ("allow-utf-8", "underscores", "dots", "values")


class Form(Struct, frozen=True):
    """An exposition format and the content type that announces it."""

    content_type: str
    openmetrics: bool


PLAIN = Form("text/plain; version=0.0.4; charset=utf-8", openmetrics=False)
_OPENMETRICS = Form("application/openmetrics-text; version=1.0.0; charset=utf-8", openmetrics=True)


@lru_cache(maxsize=32)
def choose_form(accept: str) -> Form:
    """Return the form that the scraper prefers, or the oldest text format if it names none of ours.

    Unlike the client library this honours q. So a Prometheus whose scrape_protocols put the text
    format first gets the text format.
    """
    best, best_rank = PLAIN, (0.0, False)
    for offer in accept.split(","):
        media, *rest = (part.strip().lower() for part in offer.split(";"))
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        form = _form(media, parameters)
        rank = (_quality(parameters.get("q", "1")), "*" not in media)
        if form is not None and rank[0] > 0 and rank > best_rank:
            best, best_rank = form, rank
    return best


@lru_cache(maxsize=32)
def accepts_gzip(accept_encoding: str) -> bool:
    """True if gzip is named, and not as `gzip;q=0`."""
    for offer in accept_encoding.split(","):
        coding, *rest = (part.strip().lower() for part in offer.split(";"))
        if coding == "gzip":
            return all(_quality(part[2:]) > 0 for part in rest if part.startswith("q="))
    return False


def _form(media: str, parameters: dict[str, str]) -> Form | None:
    version = parameters.get("version", "")
    if media == "application/openmetrics-text" and version in ("", "1.0.0"):
        return _escaped(_OPENMETRICS, parameters) if version else _OPENMETRICS
    if media == "text/plain" and version == "1.0.0":
        latest = Form("text/plain; version=1.0.0; charset=utf-8", openmetrics=False)
        return _escaped(latest, parameters)
    if media in ("text/plain", "text/*", "*/*") and version in ("", "0.0.4"):
        return PLAIN
    return None


def _escaped(form: Form, parameters: dict[str, str]) -> Form:
    """Add the escaping to the content type; our names need none, so the body is the same."""
    escaping = parameters.get("escaping", "")
    if escaping not in _ESCAPINGS:
        escaping = "underscores"
    return Form(f"{form.content_type}; escaping={escaping}", form.openmetrics)


def _quality(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0
