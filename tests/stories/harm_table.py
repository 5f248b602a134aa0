"""Writes docs/harm.md from the table that tests/stories/test_harm.py holds.

Run `python -m tests.stories.harm_table`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.real.hermes import REPOSITORY
from tests.stories.test_harm import CRON, TABLE, Row

PAGE = REPOSITORY / "docs" / "harm.md"
_KINDS = {
    "chat": "chat",
    "tui": "TUI",
    "embedder": "a program that embeds Hermes",
    "plugin": "plugin thread in a gateway",
    "api": "client of a gateway's API server",
    "acp": "editor (ACP)",
    "cron": "cron job",
}
_JOURNEYS = {
    "message": "asks its next question",
    "message_under_way": "gets the answer under way",
    "compress": "compresses, then asks",
    "compress_little": "compresses a short conversation, then asks",
    "compress_automatically": "asks, and Hermes compresses first",
    "branch": "branches or forks, then asks",
    "delegate": "gets the result of a subagent",
    "leave": "leaves for another conversation",
    "finish": "ends",
}
_HEAD = """# What a wrong reap costs

This page is written by `python -m tests.stories.harm_table` from the table that
`tests/stories/test_harm.py` checks with the real Hermes. A session is ended (`reaped`) while a
process is on it; the process goes on; then one scan heals.

A, B, C are the sessions of the conversation in the order they began, each with its end reason (`-`
is open). Then: what `hermes sessions list` shows, what `-c` and `--resume A` take up, and where the
search finds the last question. No message is lost in any row, before or after healing. A row holds
from its release to the next one of the same process. Every row was run with every release from 0.13
to 0.19 (`make test-full`), the cron job with 0.13, 0.16 and 0.19.

| process | what it does next | since | without a reap | not healed | healed |
| --- | --- | --- | --- | --- | --- |
"""
_TAIL = """
Not restored: the end reason that Hermes would have written where nothing comes after the reap
(`new_session`, `tui_close`, `cron_complete`), and `branched` where Hermes marks branches anyway.

Dashboard and `serve` run their agents by the TUI's own module (`tui_gateway.server`) and count as
chats; they were not run. Voice and handoff were not run; they are chats too.
"""


def page() -> str:
    return _HEAD + "\n".join(_lines()) + "\n" + _TAIL


def _lines() -> Iterator[str]:
    for row in (*TABLE, CRON):
        kinds = ", ".join(_KINDS[each] for each in row.kinds.split())
        what = _JOURNEYS[row.journey]
        if row.dropped:
            what += f" (Hermes itself drops {row.dropped} of the questions)"
        cells = (kinds, what, row.since, row.right, row.harmed, _healed(row))
        yield f"| {' | '.join(cells)} |"


def _healed(row: Row) -> str:
    return "the same as without a reap" if row.healed == row.right else row.healed


def main() -> None:
    Path(PAGE).write_text(page())


if __name__ == "__main__":
    main()
