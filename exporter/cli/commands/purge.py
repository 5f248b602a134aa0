"""`purge`: empty the trash now."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from exporter.cli import arguments, output
from exporter.cli.connect import act
from exporter.cli.interrupt import interruptible
from exporter.errors import ExporterError, UsageError
from exporter.text import escape_control

SUMMARY = "empty the trash now; this cannot be undone"
DESCRIPTION = """\
Delete the trash of one run or of all runs before its keep time is over: to free
the disk at once, or because a user wants data to be deleted. This cannot be
undone. On a terminal the command asks first; elsewhere it needs --yes."""
EXAMPLES = (
    ("one run that `history` lists", "hermes-exporter purge 20260131T093000-3f2a"),
    ("all runs, without asking", "hermes-exporter purge --yes"),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="the id of a run (default: all)")
    parser.add_argument("--yes", action="store_true", help="do it without asking")
    arguments.add_json(parser)
    arguments.add_agent(parser)


def run(args: Namespace) -> int:
    options = arguments.options(args)
    output.print_errors(*act(options, lambda service: service.lost_by_purge(args.run)))
    of = f"of run {escape_control(args.run)}" if args.run is not None else "of all runs"
    if not args.yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError("a purge cannot be undone, and no terminal is here to ask: give --yes")
        if not _confirmed(f"Empty the trash {of}, for good?"):
            raise ExporterError("nothing was purged")
    from exporter.runs.models import Frees

    with interruptible() as interrupts:
        result = act(options, lambda service: service.purge(args.run, interrupts.acting))
    if args.json:
        output.show_json(result.json())
    else:
        from exporter.cli.render import prune_plan

        go_on = arguments.repeat_command(args)
        output.show(prune_plan.purged(result.json(), args.run, result.freed[Frees.NOW], go_on))
    if result.is_interrupted:
        return interrupts.exit_status
    return arguments.exit_status(result.json()["outcome"])


def _confirmed(question: str) -> bool:
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
