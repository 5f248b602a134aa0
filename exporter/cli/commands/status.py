"""`status`: one screen about this host."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from exporter.cli import arguments, output
from exporter.cli.connect import alone, ask
from exporter.errors import PartlyDoneError, UsageError

SUMMARY = "one screen: each home, its sessions, disk, and what would be done"
DESCRIPTION = """\
Scan each home once and show: if its database can be read, its open and ended
sessions, the verdicts on the open ones, its bytes on disk by kind, and what the
agent cannot see. With more than three homes, one line for each. The exit status
is 3 if a home cannot be read, something needed cannot be seen, or a home of
yours is refused; `check` says why and what to do."""
EXAMPLES = (
    ("this host", "hermes-exporter status"),
    ("the same, again and again", "hermes-exporter status --watch"),
    ("one home, for a script", "hermes-exporter status --home ~/.hermes --json"),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        action="store_true",
        help="draw it again every 2 seconds; with the last 24 hours, until q or Ctrl-C",
    )
    arguments.add_json(parser)
    arguments.add_agent(parser)


def run(args: Namespace) -> int:
    options = arguments.options(args)
    if args.watch:
        if args.json:
            raise UsageError("--watch draws on a terminal; leave out --json")
        from exporter.cli.watch import watch

        watch(options)
        return 0
    report = ask(options, "status")
    if report is None:
        with alone(options) as service:
            report = service.status()
    if args.json:
        output.show_json(report)
    else:
        from exporter.cli.render import status

        output.show(status.blocks(report))
    told = {
        "cannot be read": [home["home"] for home in report["homes"] if not home["up"]],
        "not seen completely": [
            home["home"] for home in report["homes"] if home["up"] and home["blind"]
        ],
        "refused": [each["path"] for each in report["refused"] if each.get("own")],
    }
    troubles = [f"{what}: {', '.join(which)}" for what, which in told.items() if which]
    if troubles:
        raise PartlyDoneError(f"{'; '.join(troubles)}; `hermes-exporter check` tells why")
    return 0
