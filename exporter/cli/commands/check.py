"""`check`: is the configuration right, and what can the agent see?"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from exporter.cli import arguments, output
from exporter.cli.connect import agent_pid, ask
from exporter.cli.scan_notice import scanning
from exporter.errors import ConfigError

SUMMARY = "check the configuration and what the agent can see on this host"
DESCRIPTION = """\
Check the configuration file, then each home. For each home, show what this user
can see, what it cannot see, why, and how to grant it. Nothing is changed.

Exit status 2: the configuration has a problem. Exit status 1: something that is
needed cannot be seen, a home of yours is refused, or a Hermes process loses its
writes or is about to."""
EXAMPLES = (
    (
        "check a new configuration before the agent reads it",
        "hermes-exporter check --config.file new.yaml",
    ),
    ("show what the service would see", "sudo hermes-exporter check"),
)


def add_arguments(parser: ArgumentParser) -> None:
    arguments.add_json(parser)
    arguments.add_agent(parser)
    arguments.add_web_to_check(parser)


def run(args: Namespace) -> int:
    options = arguments.options(args)
    report = ask(options, "check")
    cost = None
    if report is not None and not args.json:
        from exporter.cli.agent_cost import cost_of

        cost = cost_of(agent_pid(options))
    if report is None:
        from exporter.agent import one_shot

        with scanning():
            report = one_shot.check(options)
    advice = report.pop("advice", ())  # it is for people; scripts rely on the other keys
    if args.json:
        output.show_json(report)
    else:
        from exporter.cli.render import check

        output.show(check.blocks(report, advice, cost))
    if report["config"]:
        raise ConfigError("\n".join(report["config"]))
    return 0 if report["ok"] else 1
