"""The report of `explain`: a verdict and its reasons, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from exporter.cli.render.blocks import VERDICT_TONES, Block, Cell, Column, Line, Table, Tone
from exporter.text import counted, format_age
from exporter.web.pages.explanation import meaning, rule_sentence, what_would_change

_TWO: Final = (Column(), Column(least=30))


def blocks(found: Mapping[str, Any], now: float) -> Iterator[Block]:
    """Yield lines for the value that `explain --json` prints."""
    verdict = found["verdict"]
    yield Line(
        (
            Cell(found["id"], Tone.STRONG),
            Cell(f"({found['source']}, home {found['home']}) is"),
            Cell(verdict, VERDICT_TONES.get(verdict, Tone.PLAIN)),
        )
    )
    yield Line((Cell(meaning(found)),))
    yield Line(
        (
            Cell(
                f"It began {_ago(found['started_at'], now)}, has "
                f"{counted(found['messages'], 'message')}, and was last active "
                f"{_ago(found['last_activity_at'], now)}.",
                Tone.FAINT,
            ),
        )
    )
    yield Line()
    yield Line((Cell("What was seen", Tone.STRONG),))
    seen = found["evidence"] or [{"says": "-", "detail": "nothing"}]
    yield Table(_TWO, tuple((Cell(each["says"]), Cell(each["detail"])) for each in seen), level=1)
    yield Line()
    yield Line((Cell("To be dead, all of this must hold", Tone.STRONG),))
    yield Table(_TWO, tuple(_rule(rule) for rule in found["rules"]), level=1)
    yield Line()
    yield Line((Cell(f"What would change it: {what_would_change(found)}."),))


def _ago(moment: float | None, now: float) -> str:
    return "at a time that is not known" if moment is None else f"{format_age(now - moment)} ago"


def _rule(rule: Mapping[str, Any]) -> tuple[Cell, Cell]:
    mark = Cell("yes") if rule["holds"] else Cell("NO", Tone.WARN)
    return mark, Cell(rule_sentence(rule))
