"""`sessions`: the open sessions."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from exporter.commands import arguments
from exporter.errors import PartlyDoneError
from exporter.terminal import output
from exporter.terminal.blocks import VERDICT_TONES

SUMMARY = "the open sessions with verdict and strongest evidence"
DESCRIPTION = """\
List every session that was never ended, and what is known of it:

  live      a process runs it, or it was active a moment ago
  held      nobody runs it, and rightly so: a routed chat, a pending handoff
  dead      proven to have nobody who could ever end it
  unknown   not enough can be seen to say"""
EXAMPLES = (
    ("all of this host", "hermes-exporter sessions"),
    ("the dead ones that a terminal left", "hermes-exporter sessions --verdict dead --source cli"),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--verdict",
        metavar="VERDICT",
        type=arguments.one_of(VERDICT_TONES),
        help="only these: live, held, dead or unknown",
    )
    parser.add_argument("--source", metavar="SOURCE", help="only these, e.g. cli, cron, telegram")
    arguments.add_json(parser)


def run(args: Namespace) -> int:
    from exporter import host

    found, missing, notes, homes = host.sessions(
        arguments.options(args), verdict=args.verdict, source=args.source
    )
    output.tell(*notes)
    if args.json:
        output.show_json(found)
    else:
        from exporter.terminal import sessions

        given = {"verdict": args.verdict, "source": args.source}
        filters = {name: value for name, value in given.items() if value is not None}
        output.show(sessions.blocks(found, filters, time.time(), homes=homes))
    if missing:
        raise PartlyDoneError(
            f"not all are shown of {', '.join(missing)}; `hermes-exporter check` tells why"
        )
    return 0
