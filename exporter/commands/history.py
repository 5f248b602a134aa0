"""`history`: what was done to the homes."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from exporter.commands import arguments
from exporter.errors import PartlyDoneError
from exporter.terminal import output

SUMMARY = "the runs so far: what was ended, deleted and given back"
DESCRIPTION = """\
List every run in every home, the newest first: what it was for, how it ended,
how much it did, and until when it can be undone."""
EXAMPLES = (("all of this host", "hermes-exporter history"),)


def add_arguments(parser: ArgumentParser) -> None:
    arguments.add_json(parser)


def run(args: Namespace) -> int:
    from exporter.hand.past import history

    rows, unread = history(arguments.options(args))
    if args.json:
        output.show_json(rows)
    else:
        from exporter.terminal import past

        output.show(past.history(rows, time.time()))
    if unread:
        raise PartlyDoneError(
            f"not known for {', '.join(unread)}: cannot be read; `hermes-exporter check` tells why"
        )
    return 0
