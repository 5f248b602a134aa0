"""`reap`: end the sessions whose process is proven dead."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from exporter.cli import arguments, output
from exporter.errors import PartlyDoneError, UsageError
from exporter.text import join_words

SUMMARY = "end the sessions that are proven dead; without --yes only say which"
DESCRIPTION = """\
Show which open sessions would be ended and why, and end them if --yes is given.

Only sessions that are dead by their verdict are ever ended, of sources that the
configuration allows, and of those only what still is as it was judged: who
resumes a session in the meantime wins. `ended_at` becomes the time of its last
activity, `end_reason` what the configuration says (`reaped`); nothing else is
written. `undo` opens them again. It looks more than once, seconds apart, before
it calls a session dead.

A reap by hand also lets automatic reaping go on after it has stopped itself."""
EXAMPLES = (
    ("what would be ended", "hermes-exporter reap"),
    ("end it", "hermes-exporter reap --yes"),
    ("exactly what was shown", "hermes-exporter reap --plan HASH --yes"),
)


def add_arguments(parser: ArgumentParser) -> None:
    arguments.add_plan(parser)
    parser.add_argument(
        "--source",
        dest="sources",
        metavar="SOURCE",
        action="append",
        help="only sessions of this source, e.g. cli; may be repeated",
    )
    parser.add_argument(
        "--presume",
        action="store_true",
        help="count idleness by the clocks that Hermes wrote, as if an agent had watched it: "
        "beside a gateway %(prog)s then ends what is idle for reaper.presume_after.server",
    )
    arguments.add_json(parser)


def run(args: Namespace) -> int:
    if args.plan is not None and not args.yes:
        raise UsageError("--plan executes a plan, so it needs --yes; without both a plan is shown")
    from exporter.agent.one_shot import host

    with host(arguments.options(args)) as service:
        result = service.reap(
            tuple(args.sources or ()),
            execute=args.yes,
            plan_hash=args.plan,
            presume=args.presume,
        )
    output.print_errors(*result.notes)
    if args.json:
        output.show_json(result.json())
    else:
        from exporter.cli.render import plan

        shown = plan.blocks(
            result.json(),
            again=arguments.repeat_options(args),
            chosen=join_words(args.sources) if args.sources else "",
            homes=len(result.plans),
        )
        output.show(shown)
    if result.unread:
        unread = ", ".join(result.unread)
        raise PartlyDoneError(
            f"not done for {unread}: cannot be read; `hermes-exporter check` tells why"
        )
    return arguments.exit_status(result.json()["outcome"], did_nothing=result.did_nothing)
