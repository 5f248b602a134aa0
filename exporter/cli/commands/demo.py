"""`demo`: serve an invented home."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from argparse import ArgumentParser, Namespace

from exporter.cli import arguments, output
from exporter.errors import UsageError

SUMMARY = "serve a small invented home; needs no Hermes"
DESCRIPTION = """\
Make a small, realistic home in a temporary directory and serve it. Its data is
invented; no real home is read. Ctrl-C stops the demo and removes the directory.
It does not take --home; `serve` does."""
EXAMPLES = (("then open http://127.0.0.1:9749/", "hermes-exporter demo"),)


def add_arguments(parser: ArgumentParser) -> None:
    arguments.add_web(parser)
    arguments.add_collectors(parser)
    parser.set_defaults(log_level="info", as_service=False)


def run(args: Namespace) -> int:
    from exporter.agent import daemon
    from exporter.config.load import load
    from exporter.demo.home import make

    if args.homes:
        raise UsageError("demo serves a home of its own; to serve yours: 'serve --home PATH'")
    options = arguments.options(args)
    load(options.config_file)  # report a bad configuration before a home is made
    with tempfile.TemporaryDirectory(
        prefix="hermes-exporter-demo-", ignore_cleanup_errors=True
    ) as directory:
        home = make(directory, now=time.time())
        state_dir = args.state_dir or os.path.join(directory, "state")
        output.emit(f"demo home: {home}\n")
        return daemon.serve(
            dataclasses.replace(options, homes=(home,), state_dir=state_dir, private_homes=True)
        )
