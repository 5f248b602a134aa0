"""The report of `prune`: what would go, what is kept and why, and what cannot be freed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

from exporter.agent.run_result import ShownPlan
from exporter.cli.render.blocks import (
    NO_HOME,
    Block,
    Cell,
    Column,
    Line,
    Table,
    Tone,
    target_column,
)
from exporter.cli.render.kept import kept_in_words
from exporter.cli.render.left_alone import left_alone, stopped
from exporter.cli.render.plan import how_to_execute, stopped_run, unknown_outcome
from exporter.collectors.prune_reasons import why_unreachable
from exporter.config.prune import POLICY_NAMES, Prune
from exporter.pruner.models import Act, PruneAction, PrunePlan, State
from exporter.runs.models import Frees, NotYet
from exporter.text import counted, format_age, format_count, format_size, join_words

_OUTCOMES = {"done": Tone.GOOD, "partial": Tone.WARN, "failed": Tone.BAD}
_LISTED = 20
"""How many items are listed one by one; `--all` lists all."""
_DAY = 86400.0
_AGES = (("< 7d", 7 * _DAY), ("7-30d", 30 * _DAY), ("30-90d", 90 * _DAY), ("> 90d", inf))
_NOTHING: Mapping[Frees, int] = dict.fromkeys(Frees, 0)


PlanOfHome = ShownPlan[State]
"""The plan of one home, and the settings that say when its bytes become free."""

_NONE: Final = {
    False: "no policy may take anything",
    True: "no crossed threshold asks for what a policy may take; without --pressure, `prune` plans "
    "all that the policies allow",
}
"""Why a plan is empty, by whether only crossed thresholds were asked about."""


def blocks(
    result: Mapping[str, Any],
    plans: Sequence[PlanOfHome],
    *,
    freed: Mapping[Frees, int] = _NOTHING,
    again: str = "",
    go_on: str = "",
    in_the_way: str = "",
    by_pressure: bool = False,
    not_saved: str = "",
    list_all: bool = False,
) -> Iterator[Block]:
    """Yield lines and tables for the value that `prune --json` prints, and its plans.

    - `freed`: the bytes of a run by the time when they become free
    - `again`: the options to repeat in the next command
    - `go_on`: this command again, to continue where it was stopped
    - `not_saved`: why the plan could not be saved
    - `in_the_way`: why nothing is planned although there may be something to do
    - `by_pressure`: only what crossed thresholds demand was asked for
    """
    actions = result["plan"]["actions"]
    if result["executed"] and (result["done"] or result["skipped"]):
        yield from _executed(result, plans, freed, again, go_on)
    elif actions:
        yield from _totals(actions, _ages(plans))
        yield from _when_free(plans)
        yield from _items(actions, list_all=list_all)
        for each in plans:
            yield from _home(each.label, each.plan)
        yield Line((Cell("Nothing was changed.", Tone.STRONG),))
        yield from how_to_execute("prune", result["plan"]["hash"], again, not_saved, go_on)
    elif not plans:
        yield NO_HOME
    else:
        for each in plans:
            yield from _home(each.label, each.plan)
        if in_the_way:
            yield Line((Cell(f"Nothing can be done now: {in_the_way}.", Tone.WARN),))
        else:
            yield Line((Cell(f"Nothing to do: {_NONE[by_pressure]}.", Tone.FAINT),))


Ages = Mapping[tuple[str, str], Sequence[int]]
"""How many items of a home and policy are in each class of age."""


def _ages(plans: Sequence[PlanOfHome]) -> Ages:
    counts: dict[tuple[str, str], list[int]] = {}
    for each in plans:
        for action in each.plan.actions:
            age = each.plan.created_at - action.since
            classes = counts.setdefault((each.label, action.policy), [0] * len(_AGES))
            if action.since:
                classes[next(place for place, (_, most) in enumerate(_AGES) if age < most)] += 1
    return counts


def _totals(actions: Sequence[Mapping[str, Any]], ages: Ages) -> Iterator[Block]:
    """Yield by home and policy how many items go, of which age, and when their bytes come free."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for each in actions:
        groups.setdefault((each["home"], each["policy"]), []).append(each)
    homes = list(dict.fromkeys(home for home, _ in groups))
    shown = [place for place in range(len(_AGES)) if any(each[place] for each in ages.values())]
    rows = [
        (
            Cell(home),
            Cell(policy, Tone.STRONG),
            *_amounts(groups[home, policy]),
            *_age_cells([ages.get((home, policy), ())], shown),
            *_when_cells(groups[home, policy]),
        )
        for home in homes
        for policy in POLICY_NAMES
        if (home, policy) in groups
    ]
    several = len(homes) > 1
    last = (Cell("all"), Cell("" if several else "all"), *_amounts(actions))
    rows.append((*last, *_age_cells(list(ages.values()), shown), *_when_cells(actions)))
    columns = (
        Column("home", least=8),
        Column("policy"),
        Column("items", right=True),
        Column("bytes", right=True),
        *(Column(_AGES[place][0], right=True) for place in shown),
        *(Column(title, right=True, spare=1) for title in ("free now", "at purge", "after upkeep")),
    )
    first = 0 if several else 1  # one home needs no column
    yield Table(columns[first:], tuple(row[first:] for row in rows))
    if what := _sessions_and_files(actions):
        yield Line((Cell(what, Tone.FAINT),))
    yield Line()


def _sessions_and_files(actions: Sequence[Mapping[str, Any]]) -> str:
    """Return which items are sessions and which are their transcripts; '' if none are."""
    sessions = Counter(a["policy"] for a in actions if a.get("action") == Act.DELETE_SESSION)
    files = Counter(a["policy"] for a in actions if a.get("action") == Act.DELETE_FILE)
    told = [
        f"{counted(sessions[policy], 'session')} and {counted(files[policy], 'transcript')}"
        f" as {policy}"
        for policy in POLICY_NAMES
        if sessions[policy] and files[policy]
    ]
    return f"Of these, {join_words(told, 'and')}." if told else ""


def _amounts(actions: Sequence[Mapping[str, Any]]) -> Iterator[Cell]:
    yield Cell(format_count(len(actions)))
    yield Cell(format_size(sum(each["bytes"] for each in actions)))


def _age_cells(classes: Sequence[Sequence[int]], shown: Sequence[int]) -> Iterator[Cell]:
    for place in shown:
        count = sum(each[place] for each in classes if each)
        yield Cell(format_count(count)) if count else Cell("-", Tone.FAINT)


def _when_cells(actions: Sequence[Mapping[str, Any]]) -> Iterator[Cell]:
    for when in Frees:
        size = sum(each["bytes"] for each in actions if each.get("frees") == when.value)
        yield Cell(format_size(size)) if size else Cell("-", Tone.FAINT)


def _when_free(plans: Sequence[PlanOfHome]) -> Iterator[Block]:
    """Yield how much disk is freed at once, later, or only by work that must be allowed first."""
    planned = [(each.settings, action) for each in plans for action in each.plan.actions]
    at_purge = [settings for settings, action in planned if action.frees is Frees.AT_PURGE]
    vacuumed = [settings for settings, action in planned if _waits_for_vacuum(action)]
    collected = [settings for settings, action in planned if _waits_for_gc(action)]
    rows = (
        (
            "at once",
            _sum(action for _, action in planned if action.frees is Frees.NOW),
            "expired trash; on a nearly full disk also sure garbage",
        ),
        (
            "with the trash",
            _sum(action for _, action in planned if action.frees is Frees.AT_PURGE),
            f"emptied {_keep_times(at_purge)} after the run, or by `purge`",
        ),
        (
            "by VACUUM",
            _sum(action for _, action in planned if _waits_for_vacuum(action)),
            "rows of state.db, which shrinks when no process has it open "
            + _allowed("vacuum", [each.upkeep.vacuum for each in vacuumed]),
        ),
        (
            "by git gc",
            _sum(action for _, action in planned if _waits_for_gc(action)),
            "checkpoints of the store, when no process uses it "
            + _allowed("gc", [each.upkeep.gc for each in collected]),
        ),
    )
    yield Table(
        (Column("comes free"), Column("bytes", right=True), Column("when", least=24)),
        tuple(
            (Cell(name), Cell(format_size(size)), Cell(how, Tone.FAINT))
            for name, size, how in rows
            if size
        ),
    )
    yield Line()


def _sum(actions: Iterable[PruneAction]) -> int:
    return sum(action.bytes for action in actions)


def _waits_for_gc(action: PruneAction) -> bool:
    return action.frees is Frees.AFTER_UPKEEP and action.kind == Act.DELETE_PROJECT


def _waits_for_vacuum(action: PruneAction) -> bool:
    return action.frees is Frees.AFTER_UPKEEP and action.kind != Act.DELETE_PROJECT


def _keep_times(settings: Sequence[Prune]) -> str:
    """Return `3d`, or `3d to 7d` if homes differ."""
    times = sorted({each.trash.keep_seconds for each in settings})
    return " to ".join(dict.fromkeys(format_age(each) for each in (*times[:1], *times[-1:])))


def _allowed(key: str, switches: Sequence[bool]) -> str:
    state = "on" if all(switches) else "off" if not any(switches) else "on in some homes"
    return f"(prune.upkeep.{key} is {state})"


def _items(actions: Sequence[Mapping[str, Any]], *, list_all: bool) -> Iterator[Block]:
    """Yield the largest items under their policies; a reason that repeats is said once."""
    largest = sorted(actions, key=lambda each: -each["bytes"])
    shown = largest if list_all else largest[:_LISTED]
    several = len({each["home"] for each in actions}) > 1
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for each in shown:
        groups.setdefault((each["home"], each["policy"]), []).append(each)
    if len(shown) < len(actions):
        some, of = format_count(len(shown)), format_count(len(actions))
        yield Line((Cell(f"The largest {some} of {of} items; --all lists all:", Tone.FAINT),))
    for (home, policy), items in groups.items():
        yield from _items_of(f"{home}: {policy}" if several else policy, items)
    yield Line()


def _items_of(heading: str, items: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """Yield the items of one policy; a folder that holds all of them is named once."""
    folders = {each["target"].rpartition("/")[0] for each in items}
    folder = f"{folders.pop()}/" if len(folders) == 1 else ""
    folder = "" if folder == "/" else folder
    yield Line(
        (Cell(heading, Tone.STRONG), *([Cell(f"in {folder}", Tone.FAINT)] if folder else ()))
    )
    names = [each["target"].removeprefix(folder) for each in items]
    reasons = ["", *(each["reason"] for each in items)]
    rows = tuple(
        (
            Cell(format_size(each["bytes"])),
            Cell(name),
            Cell('"' if each["reason"] == above else each["reason"], Tone.FAINT),
        )
        for above, name, each in zip(reasons, names, items, strict=False)
    )
    columns = (Column(right=True), target_column("", names), Column(least=16, spare=1))
    yield Table(columns, rows, level=1)


def _home(label: str, plan: PrunePlan) -> Iterator[Block]:
    """Yield what a person should know of one home before confirming."""
    lines = list(_words(plan))
    if lines:
        yield Line((Cell(label, Tone.STRONG),))
        for text, tone in lines:
            yield Line((Cell(text, tone),), level=1)
        yield Line()


def _words(plan: PrunePlan) -> Iterator[tuple[str, Tone]]:
    if plan.blocked and plan.actions:  # without any, the last line says it
        yield f"blocked: {plan.why or plan.blocked.replace('_', ' ')}", Tone.BAD
    for warning in plan.warnings:
        yield f"warning: {warning}", Tone.WARN
    if plan.protected:
        yield f"kept: {kept_in_words(plan.protected)}", Tone.PLAIN
    if plan.rows_trash_bytes:
        most = format_size(plan.rows_trash_bytes)
        yield f"until the trash is emptied, compressed rows take at most {most}", Tone.PLAIN
    bundles = sum(each.bytes for each in plan.actions if each.kind == Act.DELETE_PROJECT)
    if bundles:
        about = f"copies of store checkpoints take about {format_size(bundles)}"
        yield f"until the trash is emptied, {about}", Tone.PLAIN
    for coming in plan.not_yet:
        yield _eligible_later(coming, plan.created_at), Tone.PLAIN
    for each in plan.unreachable:
        above = f"{each.threshold}: {format_size(each.bytes)} above its low watermark"
        yield f"{above} cannot be freed: {why_unreachable(each.reason)}", Tone.WARN


def _eligible_later(coming: NotYet, now: float) -> str:
    """Return `2 orphan checkpoints, eligible in 23h`."""
    name = coming.policy.replace("_", " ")
    what = counted(coming.items, name.removesuffix("s")) if name.endswith("s") else name
    first, last = (format_age(max(0.0, each - now)) for each in (coming.first_at, coming.last_at))
    return f"{what}, eligible in {first}" + (f" to {last}" if last != first else "")


def _executed(
    result: Mapping[str, Any],
    plans: Sequence[PlanOfHome],
    freed: Mapping[Frees, int],
    again: str,
    go_on: str,
) -> Iterator[Block]:
    if result["outcome"] == "unknown":
        yield from unknown_outcome(result, again)
        return
    yield from left_alone(result["skipped"])
    if result["outcome"] == "interrupted":
        yield from _comes_free(freed, plans)
        yield from stopped_run(result, "item", "taken", again, go_on)
        return
    said = f"{counted(result['done'], 'item')} taken"
    if result["skipped"]:
        said += f", {format_count(len(result['skipped']))} left alone"
    yield Line((Cell(f"{said}.", _OUTCOMES.get(result["outcome"], Tone.PLAIN)),))
    for each in plans:
        for warning in each.plan.warnings:
            yield Line((Cell(f"{each.label}: {warning}.", Tone.WARN),))
    if result["run"] is not None:
        yield Line((Cell("To take it back, while its trash is kept:", Tone.FAINT),))
        yield Line((Cell(f"hermes-exporter undo {result['run']}{again}"),), 1, whole=True)
    yield from _comes_free(freed, plans)


def _comes_free(freed: Mapping[Frees, int], plans: Sequence[PlanOfHome]) -> Iterator[Block]:
    """Yield how much came free now, and how much comes free when."""
    if not any(freed.values()):
        return
    keep = _keep_times([each.settings for each in plans if each.plan.actions])
    when = {
        Frees.NOW: "came free now",
        Frees.AT_PURGE: f"when the trash is emptied, after {keep or 'prune.trash.keep'} or by "
        "`purge`",
        Frees.AFTER_UPKEEP: "by VACUUM or git gc",
    }
    said = [f"{format_size(freed[each])} {how}" for each, how in when.items() if freed[each] > 0]
    if freed[Frees.NOW] <= 0:
        said.insert(0, f"nothing came free now{_grown(-freed[Frees.NOW])}")
    text = "; ".join(said)
    yield Line((Cell(f"{text[0].upper()}{text[1:]}."),))


def _grown(size_bytes: int) -> str:
    if not size_bytes:
        return ""
    return (
        f": the home takes {format_size(size_bytes)} more for now (what `undo` needs, and the WAL "
        "while a process has the database open)"
    )


def purged(
    result: Mapping[str, Any], run: str | None, freed_bytes: int, go_on: str = ""
) -> Iterator[Block]:
    """Yield what `purge` did: to one run, in every home it acted on, or to all runs."""
    yield from left_alone(result["skipped"])
    done = result["done"]
    if result["outcome"] == "interrupted":
        gone = f"the trash of {counted(done, 'run')} is gone, {format_size(freed_bytes)} came free"
        yield from stopped(f"Interrupted: {gone}; the rest is as it was.", go_on=go_on)
        return
    said = "Nothing was purged." if result["skipped"] else "The trash is empty."
    if done:
        size = format_size(freed_bytes)
        whose = f"run {run}" if run is not None else "all runs"
        what = "Part of the trash" if result["skipped"] else "The trash"
        said = f"{what} of {whose} is gone: {size} came free."
    yield Line((Cell(said, _OUTCOMES.get(result["outcome"], Tone.PLAIN)),))
