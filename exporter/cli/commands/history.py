"""`history`: what was done to the homes."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from exporter.cli import arguments, output
from exporter.cli.connect import alone, ask
from exporter.cli.render.blocks import NO_HOME
from exporter.errors import PartlyDoneError

SUMMARY = "list the runs: what was ended, deleted and restored"
DESCRIPTION = """\
List every run in every home, the newest first: its kind, its outcome, how much
it did, and until when it can be undone. With the id of a run, list each item
that the run took or skipped, the policy, and the reason.

  reap    ended sessions
  heal    reopened sessions that were ended wrongly
  prune   took what policies allow
  undo    restored what another run took
  purge   emptied the trash; this cannot be undone

An outcome is done, partial, failed, or interrupted: by Ctrl-C, or because its
process is gone. A run without an outcome is under way."""
EXAMPLES = (
    ("all runs on this host", "hermes-exporter history"),
    ("what one run took", "hermes-exporter history 20260131T093000-3f2a"),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="the id of a run (default: all)")
    arguments.add_json(parser)
    arguments.add_agent(parser)


def run(args: Namespace) -> int:
    options = arguments.options(args)
    told = ask(options, "history", run=args.run)
    if told is not None:
        rows, unread, homes = told
    else:
        with alone(options) as service:
            rows, unread = service.history() if args.run is None else service.show_run(args.run)
            homes = service.count_homes()
    if args.json:
        output.show_json(rows)
    elif not rows and homes <= len(unread):
        output.show([NO_HOME])
    else:
        from exporter.cli.render import history

        shown = history.history if args.run is None else history.one_run
        output.show(shown(rows, time.time()))
    if unread:
        raise PartlyDoneError(
            f"not known for {', '.join(unread)}: cannot be read; `hermes-exporter check` tells why"
        )
    return 0
