"""`prune`: free disk space."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from exporter.cli import arguments, output
from exporter.cli.connect import act
from exporter.cli.interrupt import interruptible
from exporter.config.prune import POLICY_NAMES
from exporter.config.units import DURATION
from exporter.runs.models import Filter

SUMMARY = "free disk space by the policies; without --yes only show the plan"
DESCRIPTION = """\
Show what the policies allow to delete, and what is protected and why. With
--yes it goes to the trash of its home, from which `undo` restores it exactly.

Deleted items wait in the trash of their home, on the same disk, for
`prune.trash.keep`; `purge` empties the trash earlier. So the space of files is
free when the trash is emptied, and the space of database rows only after a
VACUUM. The plan says how much is free when.

Never deleted: open sessions; sessions that a chat or a handoff will return to;
anything pinned, archived, recent, or possibly in the memory of a living
process; anything whose protection cannot be read.

With --pressure the plan holds only as much as the crossed thresholds demand.
The agent does the same by itself where `prune.mode` is `enforce`."""
EXAMPLES = (
    ("show what could be deleted", "hermes-exporter prune"),
    ("delete it", "hermes-exporter prune --yes"),
    ("only old request dumps", "hermes-exporter prune --policy request_dumps --older-than 30d"),
    (
        "show transcripts that may be last copies",
        "hermes-exporter prune --policy orphan_files --unproven",
    ),
    ("carry out exactly the plan that was shown", "hermes-exporter prune --plan HASH --yes"),
)


def add_arguments(parser: ArgumentParser) -> None:
    arguments.add_plan(parser)
    parser.add_argument(
        "--policy",
        dest="policies",
        metavar="NAME",
        action="append",
        type=arguments.OneOf(POLICY_NAMES),
        help=f"only this policy, e.g. old_sessions; one of {', '.join(POLICY_NAMES)}; may be "
        "repeated",
    )
    parser.add_argument(
        "--older-than",
        dest="older_than",
        metavar="AGE",
        type=_duration,
        help="with --policy: this age, not the configured one; e.g. 30d",
    )
    arguments.add_sources(parser, "cron")
    parser.add_argument(
        "--unproven",
        action="store_true",
        help="with --policy orphan_files: also last copies; files whose session is not in the "
        "database and whose deletion the agent did not see",
    )
    arguments.add_include_undone(parser)
    parser.add_argument(
        "--pressure", action="store_true", help="only as much as crossed thresholds demand"
    )
    arguments.add_json(parser)
    arguments.add_agent(parser)


def _duration(text: str) -> float:
    try:
        return DURATION.parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def run(args: Namespace) -> int:
    arguments.refuse_plan_without_yes(args)
    from exporter.agent.manual_prune import PruneCommand
    from exporter.cli.render.progress import progress_bar

    command = PruneCommand(
        filter_by=Filter(
            policies=tuple(args.policies or ()),
            sources=tuple(args.sources or ()),
            older_than_seconds=args.older_than,
            unproven=args.unproven,
            include_undone=args.include_undone,
        ),
        by_pressure=args.pressure,
        execute=args.yes,
        plan_hash=args.plan,
    )
    command.check()
    options = arguments.options(args)
    with interruptible() as interrupts, progress_bar() as progress:
        result = act(options, lambda service: service.prune(command, progress, interrupts.acting))
    output.print_errors(*result.notes)
    if args.json:
        arguments.show_report_json(result)
    else:
        from exporter.cli.render import prune_plan as report

        again = arguments.repeat_options(args)
        go_on = arguments.repeat_command(args)
        output.show(
            report.blocks(
                result.json(),
                result.plans,
                freed=result.freed,
                again=again,
                go_on=go_on,
                in_the_way=result.in_the_way,
                by_pressure=args.pressure,
                not_saved=result.not_saved,
                list_all=args.all,
            )
        )
    if result.is_interrupted:
        return interrupts.exit_status
    return arguments.run_exit_status(result)
