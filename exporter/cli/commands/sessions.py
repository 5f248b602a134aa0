"""`sessions`: the open sessions."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

import msgspec

from exporter.cli import arguments, output
from exporter.cli.connect import alone, ask
from exporter.cli.render.blocks import VERDICT_TONES
from exporter.errors import PartlyDoneError

SUMMARY = "list the open sessions with verdict and strongest evidence"
DESCRIPTION = """\
List every open session with its verdict:

  live      a process runs it, or it was active a moment ago
  held      not running, but a chat or a handoff will return to it
  dead      no process can be running it (proven), or it was idle for long while
            a process that may have it ran (presumed)
  exempt    sessions of its source are never reaped
  unknown   not enough is known; `explain ID` says what is missing"""
EXAMPLES = (
    ("all on this host", "hermes-exporter sessions"),
    ("dead ones of the terminal", "hermes-exporter sessions --verdict dead --source cli"),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--verdict",
        metavar="VERDICT",
        type=arguments.OneOf(VERDICT_TONES),
        help="only this verdict: live, held, dead, exempt or unknown",
    )
    parser.add_argument(
        "--source", metavar="SOURCE", help="only this source, e.g. cli, cron, telegram"
    )
    parser.add_argument(
        "--over-limit",
        action="store_true",
        help="only live and held marathons; with more messages than marathon.max_messages",
    )
    arguments.add_json(parser)
    arguments.add_agent(parser)


def run(args: Namespace) -> int:
    from exporter.agent.socket_messages import OpenSessions

    options = arguments.options(args)
    over_limit = "yes" if args.over_limit else None
    told = ask(options, "sessions", verdict=args.verdict, source=args.source, over_limit=over_limit)
    if told is not None:
        found = msgspec.convert(told, OpenSessions)
    else:
        with alone(options) as service:
            found = service.sessions(
                verdict=args.verdict, source=args.source, over_limit=args.over_limit
            )
    output.print_errors(*found.notes)
    if args.json:
        output.show_json(found.rows)
    else:
        from exporter.cli.render import sessions

        given = {"verdict": args.verdict, "source": args.source}
        filters = {name: value for name, value in given.items() if value is not None}
        if args.over_limit:
            filters["more messages than"] = "marathon.max_messages"
        output.show(sessions.blocks(found.rows, filters, time.time(), homes=found.homes))
    if found.incomplete:
        raise PartlyDoneError(
            f"not all are shown of {', '.join(found.incomplete)}; `hermes-exporter check` tells why"
        )
    return 0
