"""The report of `explain`: a verdict and its reasons, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from exporter.cli.render.blocks import VERDICT_TONES, Block, Cell, Column, Line, Table, Tone
from exporter.config.settings import REAPABLE_SOURCES
from exporter.text import counted, format_age

_MEANING: Final = {
    "live": "A process is running it, or was a moment ago.",
    "held": "It is not running, but a chat or a handoff will return to it.",
    "dead": "No process is running it, and none will ever end it.",
    "exempt": "Sessions of its source are never reaped.",
    "unknown": "Not enough is known to call it dead, so it is left alone.",
}
_RULES: Final = {
    "no_sign_of_life": "there is no sign of life",
    "not_held": "nothing will return to it",
    "source": "sessions of its source are reaped",
    "all_visible": "every process that could run it can be seen",
    "idle_long_enough": "it is idle for as long as the processes here ask for",
    "confirmed": "several scans agree",
}
_CHANGE: Final = {
    "source": "naming its source under reaper.sources",
    "not_held": "the end of what holds it (what an undo opened: of `prune.keep.undone`)",
    "no_sign_of_life": "time without activity, or the end of the process that names it",
    "all_visible": "what `hermes-exporter check` says to grant",
    "idle_long_enough": "the end of that process, or so much more time without a message",
    "confirmed": "another scan",
}

_NEVER: Final = "nothing, for sessions of this source are never reaped"
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
    yield Line((Cell(_MEANING[verdict]),))
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
    yield Line((Cell(f"What would change it: {_change(found)}."),))


def _ago(moment: float | None, now: float) -> str:
    return "at a time that is not known" if moment is None else f"{format_age(now - moment)} ago"


def _rule(rule: Mapping[str, Any]) -> tuple[Cell, Cell]:
    mark = Cell("yes") if rule["holds"] else Cell("NO", Tone.WARN)
    return mark, Cell(f"{_RULES.get(rule['rule'], rule['rule'])}: {rule['why']}")


def _change(found: Mapping[str, Any]) -> str:
    missing = [rule["rule"] for rule in found["rules"] if not rule["holds"]]
    if not missing:
        return "a message, a process that could run it, or a chat that leads to it"
    if "source" in missing and found["source"] not in REAPABLE_SOURCES:
        return _NEVER
    others = [name for name in missing if name != "confirmed"]
    return "; ".join(_CHANGE.get(name, name) for name in others or missing)
