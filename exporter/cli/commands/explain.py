"""`explain`: why a session has its verdict."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from exporter.cli import arguments, output
from exporter.cli.connect import alone, ask

SUMMARY = "show all evidence and rules for one open session"
DESCRIPTION = """\
Show why an open session is live, held, dead or unknown: what the scan saw,
which conditions for the verdict dead are met, and what would change the
verdict. The beginning of an id is enough if no other open session has it."""
EXAMPLES = (
    ("a session from the list of `sessions`", "hermes-exporter explain 20260131_093000_3f2a1b"),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("session", metavar="ID", help="id of an open session, or its beginning")
    arguments.add_json(parser)
    arguments.add_agent(parser)


def run(args: Namespace) -> int:
    options = arguments.options(args)
    found = ask(options, "explain", session=args.session)
    if found is None:
        with alone(options) as service:
            found = service.explain(args.session)
    if args.json:
        output.show_json(found)
    else:
        from exporter.cli.render import explain

        output.show(explain.blocks(found, time.time()))
    return 0
