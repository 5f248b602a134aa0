"""`undo`: give back what a run took."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from exporter.cli import arguments, output
from exporter.errors import UsageError

SUMMARY = "give back what a run took"
DESCRIPTION = """\
Take back a run: sessions that it ended are open again, and what it deleted is
restored from the trash, exactly as it was. What Hermes has changed since is
left as it is, and named: a session whose title another has taken meanwhile
stays in the trash; rename the other one and repeat the undo. Automatic runs
leave alone what was given back for as long as `prune.keep.undone` says, and so
does `reap` with sessions.

Which run that is, is said first, on stderr: its kind, when it was begun,
whether by hand or by the agent, and in which homes."""
EXAMPLES = (
    ("a run from the list of `history`", "hermes-exporter undo 20260131T093000-3f2a"),
    ("the last one, whoever made it", "hermes-exporter undo --last"),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="the id of a run")
    parser.add_argument(
        "--last",
        action="store_true",
        help="the last run that can be given back, by hand or by the agent",
    )
    arguments.add_json(parser)


def run(args: Namespace) -> int:
    if (args.run is None) != args.last:
        raise UsageError("give either the id of a run or --last; `history` lists the runs")
    from exporter.agent.one_shot import host
    from exporter.cli.render import history
    from exporter.runs.models import Run

    def announce(taken: Sequence[tuple[str, Run]], newest: Sequence[tuple[str, Run]]) -> None:
        output.print_errors(*history.undo_announcement(taken, newest, time.time()))

    with host(arguments.options(args)) as service:
        undone = service.undo(args.run, announce)
    if args.json:
        output.show_json(
            {
                "run": undone.run,
                "restored": len(undone.done),
                "failed": [{"target": each.target, "why": each.why} for each in undone.skipped],
            }
        )
    else:
        output.show(history.undo_result(undone))
    if not undone.skipped:
        return 0
    return 3 if undone.done else 1
