"""`files`: what is installed beside the program."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from exporter.cli import arguments, output
from exporter.cli.shipped_files import shipped
from exporter.errors import UsageError
from exporter.text import closest_match, quoted

SUMMARY = "dashboards, rules, runbooks, units, man page, completion"
DESCRIPTION = """\
List the files that come with hermes-exporter: Grafana dashboards, recording
rules and alerts, a runbook for each alert, systemd and launchd units, the
manual page, completion for bash, zsh and fish, and the documentation.

With a PATH of the list, print that file; with a folder and --to, copy it."""
EXAMPLES = (
    ("what there is", "hermes-exporter files"),
    ("read a runbook", "hermes-exporter files runbooks/HermesDiskNearlyFull.md"),
    ("copy the dashboards for Grafana", "hermes-exporter files dashboards --to /srv/grafana"),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", nargs="?", help="a file or folder of the list")
    parser.add_argument(
        "--to", metavar="DIR", type=arguments.directory, help="copy into this directory"
    )
    arguments.add_json(parser)


def run(args: Namespace) -> int:
    files = shipped()
    wanted = (args.path or "").rstrip("/")
    chosen = {
        name: path
        for name, path in files.items()
        if not wanted or name == wanted or name.startswith(f"{wanted}/")
    }
    if not chosen:
        meant = closest_match(wanted, files)
        fix = f"did you mean '{meant}'?" if meant else "`hermes-exporter files` lists them"
        raise UsageError(f"there is no file {quoted(wanted)}, {fix}")
    if args.to is not None:
        for name, path in chosen.items():
            target = os.path.join(args.to, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as copy:
                copy.write(path.read_bytes())
        output.emit(f"{len(chosen)} files in {args.to}\n")
    elif args.json:
        output.show_json([{"name": name, "path": str(path)} for name, path in chosen.items()])
    elif wanted in files:
        output.emit(files[wanted].read_text(encoding="utf-8"))
    else:
        output.emit("".join(f"{name}\n" for name in chosen))
    return 0
