"""`serve`: the agent."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from exporter.agent.options import DEFAULT_LISTEN_ADDRESS, DEFAULT_PORT
from exporter.cli import arguments, head_start

SUMMARY = "scan the homes of this host and serve their metrics"
DESCRIPTION = """\
Run the agent: scan every Hermes home on this host again and again, and serve
the results as Prometheus metrics and as a web page. Homes are only read, unless
the configuration says `mode: enforce`.

A scrape is answered from memory and touches no disk.

SIGTERM: finish the responses under way, then end. SIGHUP: read the
configuration again."""
EXAMPLES = (
    (f"every home on this host, on {DEFAULT_LISTEN_ADDRESS}", "hermes-exporter serve"),
    (
        "one home, for scrapes from other hosts",
        f"hermes-exporter serve --home ~/.hermes --web.listen-address :{DEFAULT_PORT}",
    ),
)


def add_arguments(parser: ArgumentParser) -> None:
    arguments.add_web(parser)
    arguments.add_collectors(parser)
    parser.set_defaults(log_level="info", as_service=False, looks_for_config=True)


def run(args: Namespace) -> int:
    from exporter.agent import daemon

    return daemon.serve(arguments.options(args), head_start.take_server())
