"""`demo`: serve an invented home."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace

from exporter.agent.options import DEFAULT_LISTEN_ADDRESS
from exporter.cli import arguments, output
from exporter.errors import UsageError

SUMMARY = "serve a small invented home; needs no Hermes"
DESCRIPTION = """\
Make a small, realistic home in a temporary directory and serve it. Its data is
invented; no real home is read. The first lines are commands to try in another
terminal. Ctrl-C stops the demo and removes the directory.
It does not take --home; `serve` does."""
EXAMPLES = ((f"then open http://{DEFAULT_LISTEN_ADDRESS}/", "hermes-exporter demo"),)


def add_arguments(parser: ArgumentParser) -> None:
    arguments.add_web(parser)
    arguments.add_collectors(parser)
    parser.set_defaults(log_level="info", as_service=False)


def run(args: Namespace) -> int:
    from exporter.agent import daemon
    from exporter.config.load import load
    from exporter.demo.home import make
    from exporter.demo.state import write_settings, write_state
    from exporter.web.listen import refuse_taken

    if args.homes:
        raise UsageError("demo serves a home of its own; to serve yours: 'serve --home PATH'")
    options = arguments.options(args)
    load(options.config_file)  # report a bad configuration before a home is made
    refuse_taken(options.listen_addresses)
    with tempfile.TemporaryDirectory(
        prefix="hermes-exporter-demo-", ignore_cleanup_errors=True
    ) as directory:
        now = time.time()
        home = make(directory, now=now)
        state_dir = args.state_dir or os.path.join(directory, "state")
        if args.state_dir is None:
            write_state(state_dir, home, now=now)
        config = options.config_file or write_settings(directory)
        served = dataclasses.replace(
            options, homes=(home,), state_dir=state_dir, config_file=config
        )
        output.emit(_commands_to_try(home, state_dir, config))
        return daemon.serve(served)


def _commands_to_try(home: str, state_dir: str, config: str) -> str:
    """Return lines that work when they are pasted into another terminal, in any folder."""
    program = output.as_called()
    if program == output.PROGRAM and shutil.which(program) is None:
        program = f"{shlex.quote(sys.executable)} -m exporter"
    place = shlex.join(["--home", home, "--state-dir", state_dir, "--config.file", config])
    lines = [f"{program} {words} {place}" for words in ("status", "reap", "prune", "prune --yes")]
    return "".join(
        f"{line}\n" for line in (f"demo home: {home}; to try in another terminal:", *lines)
    )
