"""`textfile`: the metrics as a file, for node_exporter."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from exporter.cli import arguments
from exporter.errors import PartlyDoneError

SUMMARY = "write the metrics once, for node_exporter's textfile collector"
DESCRIPTION = """\
Scan each home once and write its metrics to PATH. The file is replaced as a
whole: a reader sees the old metrics or the new ones, never a part. Run it from
a timer or cron. If a home cannot be read, the file is still written, with
hermes_home_up 0, and the exit status is 3."""
EXAMPLES = (
    (
        "where Debian's node_exporter looks",
        "hermes-exporter textfile /var/lib/prometheus/node-exporter/hermes.prom",
    ),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the file; its name must end in .prom")
    arguments.add_collectors(parser)


def run(args: Namespace) -> int:
    from exporter.agent import one_shot
    from exporter.cli import textfile

    metrics, down = one_shot.metrics_text(arguments.options(args))
    textfile.write_atomically(args.path, metrics)
    if down:
        raise PartlyDoneError(
            f"cannot be read: {', '.join(down)}; written all the same, with hermes_home_up 0"
        )
    return 0
