"""The report of `status`: one screen for a few homes, one line each for many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from exporter.cli.render.blocks import VERDICT_TONES, Bar, Block, Cell, Column, Line, Table, Tone
from exporter.collectors.prune_reasons import RUN_FAILED, why_blocked
from exporter.evidence.blind_spots import blind_in_words
from exporter.text import (
    counted,
    format_age,
    format_count,
    format_percent,
    format_pids,
    format_size,
    format_time,
)

MOST_IN_DETAIL = 3
"""With more homes than this, each has one line: the whole host fits on one screen."""

HomeJson = Mapping[str, Any]

_COUNTS = ("empty_sessions",)
_RATIOS = ("disk_used",)
_DOWN: Final = {
    "not_a_file": "state.db is no file",
    "foreign_owner": "a part of it belongs to another user",
    "permission": "it may not be read",
    "corrupt": "its database is damaged",
    "not_a_database": "its state.db is no database",
    "no_sessions_table": "its database has no sessions",
    "busy": "its database is locked",
    "io_error": "reading it failed",
    "moved_while_reading": "its database was replaced while it was read",
    "lockless_shm_holder": "a process has lost its lock, and opening the database could end it",
    "home_gone": "it is not there, or is no folder",
    "timeout": "its filesystem does not answer",
    "worker_died": "the process that reads it has died",
}
"""In words, why a home is down: JSON names it by one word."""


def blocks(report: Mapping[str, Any]) -> Iterator[Block]:
    """Yield lines and tables for the value that `status --json` prints."""
    homes = report["homes"]
    agent = report["agent"]
    mixed = any(home.get("mode", agent["mode"]) != agent["mode"] for home in homes)
    if not homes and report.get("refused"):
        yield Line((Cell("No Hermes home is watched.", Tone.WARN),))
    elif not homes:
        yield Line((Cell("No Hermes home found.", Tone.WARN), Cell("Name one with --home PATH.")))
    elif len(homes) > MOST_IN_DETAIL:
        yield _overview(homes, mixed)
        yield from _troubles(homes)
    else:
        for home in homes:
            yield from _detail(home, mixed)
            yield Line()
    yield from _refused(report.get("refused") or ())
    modes = _modes(agent) + (", not in every home" if mixed else "")
    yield Line((Cell(f"hermes-exporter {agent['version']}: {modes}", Tone.FAINT),))


def _modes(of: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {mode}" for name, mode in of["mode"].items())


def _enforced(home: HomeJson) -> str:
    return ", ".join(name for name, mode in home["mode"].items() if mode == "enforce")


def _refused(refused: Sequence[Mapping[str, str]]) -> Iterator[Block]:
    """Yield paths that look like a home and are not watched; a new user would search for them."""
    for each in refused[:MOST_IN_DETAIL]:
        yield Line((Cell(each["path"], Tone.STRONG), Cell("is not watched:", Tone.WARN)))
        yield Line((Cell(f"{each['why']}; {each['fix']}"),), level=1)
    if len(refused) > MOST_IN_DETAIL:
        more = f"and {len(refused) - MOST_IN_DETAIL} more; `hermes-exporter check` lists them"
        yield Line((Cell(more, Tone.WARN),))


def _detail(home: HomeJson, mixed: bool) -> Iterator[Block]:
    name, path = Cell(home["home"], Tone.STRONG), Cell(home["path"], Tone.FAINT)
    yield Line((name, path, _up(home), *_why_down(home), *_no_database(home)))
    for loss in _losses(home):
        yield _fact("warning", Cell(loss, Tone.BAD))
    if mixed:
        yield _fact("mode", Cell(_modes(home)))
    yield _fact("sessions", _sessions(home))
    yield _fact("verdicts", *_verdicts(home))
    for each in home.get("waiting") or ():
        yield _fact("unknown", Cell(_waits_for(each, home.get("scanned_at"))))
    if home["blind"] and home["up"]:
        yield _fact("blind", _blind(home))
    if home.get("breaker"):
        yield _fact("breaker", Cell(f"{home['breaker']}; reap by hand to go on", Tone.BAD))
    yield _fact("disk", Cell(_disk_total(home), Tone.STRONG))
    yield from _disk(home)
    if home.get("thresholds"):
        yield _fact("pressure", _pressure(home))
        yield _thresholds(home)
        yield from _when_a_run_acts(home)
    would = _would(home)
    if would and home.get("cannot_write"):
        yield _fact("cannot", Cell(f"change anything: {home['cannot_write']}", Tone.BAD))
        yield _fact("otherwise", Cell(would))
    elif would:
        yield _fact("would", Cell(would))
    if home.get("next_clean_up_at") is not None:
        when = format_time(home["next_clean_up_at"])
        what = (
            "the next clean-up by age" if home["mode"]["prune"] == "enforce" else "by age, a plan"
        )
        yield _fact("retention", Cell(f"{what}: {when}"))
    if home.get("capped"):
        yield _fact("waits", Cell(_capped(home["capped"]), Tone.WARN))


def _fact(name: str, *pieces: Cell) -> Line:
    return Line((Cell(f"{name:<9}", Tone.FAINT), *pieces), level=1)


def _up(home: HomeJson) -> Cell:
    return Cell("up", Tone.GOOD) if home["up"] else Cell("DOWN", Tone.BAD)


def _why_down(home: HomeJson) -> tuple[Cell, ...]:
    trouble = home.get("trouble", "none")
    if home["up"] or trouble == "none":
        return ()
    return (Cell(f"({why_down(trouble, home.get('why_down') or '')})", Tone.BAD),)


def why_down(trouble: str, detail: str) -> str:
    """Return why a home is down: what was found there, or else what kind of trouble it is."""
    return detail or _DOWN.get(trouble, trouble.replace("_", " "))


def _no_database(home: HomeJson) -> tuple[Cell, ...]:
    missing = home["up"] and home.get("has_database") is False
    return (Cell("(no state.db: Hermes has not run here yet)", Tone.WARN),) if missing else ()


def _sessions(home: HomeJson) -> Cell:
    counts = {name: _count(value) for name, value in home["sessions"].items()}
    return Cell(
        f"{counts['open']} open, {counts['ended']} ended; "
        f"of the ended {counts['empty']} empty, {counts['trivial']} trivial"
    )


def _verdicts(home: HomeJson) -> list[Cell]:
    """Return the verdict counts; only those above 0 stand out."""
    verdicts = home["verdicts"]
    last = list(verdicts)[-1]
    return [
        Cell(
            f"{_count(value)} {name}" + ("" if name == last else ","),
            VERDICT_TONES[name] if value else Tone.FAINT,
        )
        for name, value in verdicts.items()
    ]


def _disk(home: HomeJson) -> Iterator[Table]:
    total = _total(home)
    kinds = sorted(home["disk"].items(), key=lambda item: -item[1])
    rows = tuple(
        (Cell(kind), Cell(format_size(size)), Bar(size / total)) for kind, size in kinds if size
    )
    if rows:
        yield Table((Column(), Column(right=True), Column()), rows, level=2)


def _thresholds(home: HomeJson) -> Table:
    rows = []
    for threshold in home["thresholds"]:
        name, value = threshold["name"], threshold["value"]
        tone = Tone.BAD if threshold["pressure"] else Tone.PLAIN
        marks = f"high {_amount(name, threshold['high'])}, low {_amount(name, threshold['low'])}"
        filled = 0.0 if value is None else value / threshold["high"]
        rows.append(
            (Cell(name, tone), Cell(_amount(name, value)), Bar(filled, tone, 16), Cell(marks))
        )
    columns = (Column(), Column(right=True), Column(), Column(least=10))
    return Table(columns, tuple(rows), level=2)


def _pressure(home: HomeJson) -> Cell:
    crossed = ", ".join(_crossed(home))
    if crossed:
        return Cell(crossed, Tone.BAD)
    over = ", ".join(row["name"] for row in home["thresholds"] if row.get("over_since"))
    return Cell(f"none yet; over: {over}", Tone.WARN) if over else Cell("none", Tone.GOOD)


def _when_a_run_acts(home: HomeJson) -> Iterator[Line]:
    """Yield since when thresholds are over, and when a run of the agent acts on it."""
    now = home.get("scanned_at")
    told: dict[str, list[str]] = {}
    for row in home["thresholds"]:
        if row.get("over_since") is not None and now is not None:
            since = "under pressure since" if row["pressure"] else "over its high mark since"
            since = f"{since} {format_time(row['over_since'])}"
            told.setdefault(f"{since}; {_acts(home, row, now)}", []).append(row["name"])
    for said, names in told.items():
        yield Line((Cell(f"{', '.join(names)}: {said}", Tone.WARN),), level=2)


def _acts(home: HomeJson, row: Mapping[str, Any], now: float) -> str:
    """Return when a run acts on a threshold that is over."""
    if home["mode"]["prune"] != "enforce":
        return "no run acts by itself (prune.mode is observe)"
    if home.get("cannot_write"):
        return f"no run can act: {home['cannot_write']}"
    if RUN_FAILED in home.get("prune_blocked", ()):
        return f"{why_blocked(RUN_FAILED)}; the agent tries again later"
    if row["acts_at"] is not None and row["acts_at"] > now:
        return f"a run acts from {format_time(row['acts_at'])} on"
    nothing = row["pressure"] and not (home.get("would_prune") or {}).get("items")
    return "there is nothing that a run may take" if nothing else "a run acts at the next check"


def _crossed(home: HomeJson) -> list[str]:
    return [row["name"] for row in home.get("thresholds") or () if row["pressure"]]


def _would(home: HomeJson) -> str:
    """Return what reap and prune would do now; empty if nothing."""
    parts = []
    if home.get("would_reap"):
        parts.append(f"reap {counted(home['would_reap'], 'session')}{_waiting(home)}")
    parts += _would_prune(home)
    return "; ".join(parts)


def _would_prune(home: HomeJson) -> Iterator[str]:
    """Yield what crossed thresholds demand, and what `prune` by hand could take, if it is known."""
    demanded, allowed = home.get("would_prune"), home.get("could_prune")
    if demanded and demanded["items"]:
        items = counted(demanded["items"], "item")
        yield f"prune {items}, {format_size(demanded['bytes'])}, for the thresholds"
    if allowed and allowed["items"]:
        items = counted(allowed["items"], "item")
        yield f"by hand `prune` could take {items}, {format_size(allowed['bytes'])}, in all"


_KINDS: Final = {"server": "gateway or cron", "chat": "chat", "unknown_program": "other program"}


def _waits_for(each: Mapping[str, Any], now: float | None) -> str:
    """Return what sessions without a verdict wait for, and for how long."""
    count, reason = counted(each["sessions"], "session"), each["reason"]
    wait = "waits" if each["sessions"] == 1 else "wait"
    if reason == "routing":
        return f"{count} {wait} for chat routing that cannot be read"
    if each["process"] is None:
        return f"{count} {wait} for what cannot be seen, or for the next scan"
    several = each["processes"] > 1
    who = f"process {each['process']}" + (
        f" and {format_count(each['processes'] - 1)} more" if several else ""
    )
    if reason == "stopped":
        return f"{count} {wait} for {who}, stopped: nothing counts as idle beside it"
    kind = _KINDS[reason]
    if now is not None and each["process_began_at"] is not None:
        kind += f", since {format_age(max(0.0, now - each['process_began_at']))}"
    closes = "all of them close" if several else "it closes"
    if each["dead_at"] is None or now is None:
        return f"{count} {wait} for {who} ({kind}): dead when {closes}"
    left = format_age(max(0.0, each["dead_at"] - now))
    return f"{count} {wait} for {who} ({kind}): dead in {left}, or when {closes}"


def _capped(capped: Mapping[str, Any]) -> str:
    """Return what automatic runs leave for later, and until when."""
    what = f"{counted(capped['items'], 'item')}, {format_size(capped['bytes'])}"
    said = f"{what} wait for the daily caps (prune.caps)"
    if capped["more_at"] is not None:
        said += f", the next from {format_time(capped['more_at'])} on"
    return said


def _waiting(home: HomeJson) -> str:
    """Return what slow start leaves for later hours; empty if nothing."""
    limit = home.get("slow_start")
    if not limit or not limit["waiting"]:
        return ""
    waiting = format_count(limit["waiting"])
    return (
        f", of which {waiting} wait for slow start: {format_count(limit['per_hour'])} in this hour"
    )


_OVERVIEW: Final = ("live", "held", "dead", "exempt", "unknown")
"""All verdicts: they add up to the open sessions."""


def _overview(homes: list[HomeJson], mixed: bool) -> Table:
    titles = ("open", *_OVERVIEW, "ended", "empty", "disk")
    columns = (
        Column("home", least=10),
        Column("state"),
        *(Column(title, right=True) for title in titles),
    )
    rows = tuple(_overview_row(home) for home in homes)
    if mixed:
        columns += (Column("enforced"),)
        rows = tuple((*row, Cell(_enforced(home))) for row, home in zip(rows, homes, strict=True))
    return Table(columns, rows)


def _overview_row(home: HomeJson) -> tuple[Cell, ...]:
    sessions, verdicts = home["sessions"], home["verdicts"]
    return (
        Cell(home["home"], Tone.STRONG),
        _up(home),
        Cell(_count(sessions["open"])),
        *(
            Cell(
                _count(verdicts.get(name)),
                VERDICT_TONES[name] if verdicts.get(name) else Tone.FAINT,
            )
            for name in _OVERVIEW
        ),
        Cell(_count(sessions["ended"])),
        Cell(_count(sessions["empty"])),
        Cell(_disk_total(home)),
    )


def _troubles(homes: list[HomeJson]) -> Iterator[Line]:
    for home in homes:
        name = Cell(home["home"], Tone.STRONG)
        if not home["up"]:
            yield Line((name, Cell("is"), _up(home), *_why_down(home)))
        for loss in _losses(home):
            yield Line((name, Cell("warning:"), Cell(loss, Tone.BAD)))
        if home["up"] and home.get("has_database") is False:
            yield Line((name, Cell("has no state.db: Hermes has not run here yet", Tone.WARN)))
        if home["blind"] and home["up"]:
            yield Line((name, Cell("is blind to"), _blind(home)))
        if home.get("breaker"):
            yield Line((name, Cell("reaps no more:"), Cell(home["breaker"], Tone.BAD)))
        if _crossed(home):
            yield Line((name, Cell("is over"), _pressure(home)))
        if home.get("cannot_write"):
            yield Line((name, Cell("cannot be changed:"), Cell(home["cannot_write"], Tone.BAD)))


def _losses(home: HomeJson) -> Iterator[str]:
    """Yield lines about processes that lose their writes, or soon will; each process once."""
    deleted = home.get("deleted_wal_pids") or []
    endangered = [pid for pid in home.get("lockless_pids") or () if pid not in deleted]
    if deleted:
        yield (
            f"nothing that is written by {format_pids(deleted)} is kept: its file was deleted; "
            "see runbook HermesPersistenceDead"
        )
    if endangered:
        yield (
            f"{format_pids(endangered)} lost the locks on state.db: do not open it with "
            "anything else, restart; see runbook HermesLocklessHolders"
        )


def _blind(home: HomeJson) -> Cell:
    return Cell(blind_in_words(home["blind"]), Tone.WARN)


def _total(home: HomeJson) -> int:
    return sum(home["disk"].values())


def _disk_total(home: HomeJson) -> str:
    """Return the measured total; `?` for a home that could not be walked and so has no kinds."""
    return format_size(_total(home)) if home["disk"] else "?"


def _count(value: int | None) -> str:
    return "?" if value is None else format_count(value)


def _amount(name: str, value: float | None) -> str:
    """Return a value of a threshold in the unit of that threshold."""
    if value is None:
        return "?"
    if name in _RATIOS:
        return format_percent(value)
    return format_count(int(value)) if name in _COUNTS else format_size(value)
