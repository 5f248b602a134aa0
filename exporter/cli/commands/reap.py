"""`reap`: end dead sessions."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from exporter.cli import arguments, output
from exporter.cli.connect import act
from exporter.cli.interrupt import interruptible
from exporter.text import join_words

SUMMARY = "end the dead sessions; without --yes only show the plan"
DESCRIPTION = """\
Show which open sessions are dead, and why. With --yes, end them; `undo` reopens
them.

A session is ended only if:
  - its verdict is dead, in several scans that are seconds apart;
  - the configuration allows to reap its source (`reaper.sources`);
  - it has not changed since the verdict: a resumed session stays open.

`ended_at` becomes the time of the last activity and `end_reason` the configured
word (`reaped`); nothing else is written. `undo` reopens the sessions.

If automatic reaping has stopped itself, a reap by hand starts it again."""
EXAMPLES = (
    ("show what would be ended", "hermes-exporter reap"),
    ("end it", "hermes-exporter reap --yes"),
    ("carry out exactly the plan that was shown", "hermes-exporter reap --plan HASH --yes"),
)


def add_arguments(parser: ArgumentParser) -> None:
    arguments.add_plan(parser)
    arguments.add_sources(parser, "cli")
    parser.add_argument(
        "--presume",
        action="store_true",
        help="count idle time by the clocks of Hermes; as if an agent had watched: "
        "beside a gateway, sessions idle for reaper.presume_after.server are then ended",
    )
    arguments.add_include_undone(parser)
    arguments.add_json(parser)
    arguments.add_agent(parser)


def run(args: Namespace) -> int:
    arguments.refuse_plan_without_yes(args)
    from exporter.agent.manual_reap import ReapCommand

    command = ReapCommand(
        sources=tuple(args.sources or ()),
        execute=args.yes,
        plan_hash=args.plan,
        presume=args.presume,
        include_undone=args.include_undone,
    )
    options = arguments.options(args)
    with interruptible() as interrupts:
        result = act(options, lambda service: service.reap(command, interrupts.acting))
    output.print_errors(*result.notes)
    if args.json:
        arguments.show_report_json(result)
    else:
        from exporter.cli.render import plan

        shown = plan.blocks(
            result.json(),
            again=arguments.repeat_options(args),
            go_on=arguments.repeat_command(args),
            chosen=join_words(args.sources) if args.sources else "",
            homes=len(result.plans),
            in_the_way=result.in_the_way,
            not_saved=result.not_saved,
            plans=[(each.label, each.actions) for each in result.plans],
            now=result.created_at,
            list_all=args.all,
        )
        output.show(shown)
    if result.is_interrupted:
        return interrupts.exit_status
    return arguments.run_exit_status(result)
