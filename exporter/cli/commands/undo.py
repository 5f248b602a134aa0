"""`undo`: restore what a run took."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from exporter.cli import arguments, output
from exporter.cli.connect import act
from exporter.cli.interrupt import interruptible
from exporter.errors import PartlyDoneError, UsageError

SUMMARY = "undo a run: restore what it took"
DESCRIPTION = """\
Undo a run: reopen the sessions that it ended, and restore what it deleted from
the trash, exactly. What Hermes changed since then is skipped and listed. For
example, a session whose title another session has now stays in the trash:
rename the other session and repeat the undo.

For `prune.keep.undone` (30 days), `reap`, `prune` and the agent skip what was
given back; by hand, `--include-undone` takes it all the same.

The command first says on stderr which run it undoes: its kind, when it began,
if it was made by hand or by the agent, and in which homes."""
EXAMPLES = (
    ("a run that `history` lists", "hermes-exporter undo 20260131T093000-3f2a"),
    ("the last run, by hand or by the agent", "hermes-exporter undo --last"),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="the id of a run")
    parser.add_argument(
        "--last",
        action="store_true",
        help="the last run that can be undone, by hand or by the agent",
    )
    arguments.add_json(parser)
    arguments.add_agent(parser)


def run(args: Namespace) -> int:
    if (args.run is None) != args.last:
        raise UsageError("give either the id of a run or --last; `history` lists the runs")
    from exporter.cli.render import history
    from exporter.runs.models import Run, RunOutcome

    planned = 0

    def announce(chosen: Sequence[tuple[str, Run]], newest: Sequence[tuple[str, Run]]) -> None:
        nonlocal planned
        planned = sum(each.actions - each.undone for _, each in chosen)
        output.print_errors(*history.undo_announcement(chosen, newest, time.time()))

    options = arguments.options(args)
    with interruptible() as interrupts:
        report = act(options, lambda service: service.undo(args.run, announce, interrupts.acting))
    undone = report.outcome
    if args.json:
        output.show_json(
            {
                "run": undone.run,
                "restored": len(undone.done),
                "failed": [{"target": each.target, "why": each.why} for each in undone.skipped],
            }
        )
    else:
        again = arguments.repeat_options(args)
        output.show(history.undo_result(report, planned, again))
    if undone.outcome is RunOutcome.INTERRUPTED:
        return interrupts.exit_status
    if report.unread:
        raise PartlyDoneError(
            f"not known whether the run acted on {', '.join(report.unread)} too: the history there "
            "cannot be read; `hermes-exporter check` tells why"
        )
    return arguments.exit_status(undone.outcome.value)
