"""`python -m benchmarks [NAME ...]`: run benchmarks, print figures and targets, save them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import figures, performance, registry, report
from benchmarks.line import Setting, Verdict


def main() -> int:
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 160)
    if arguments.list:
        for name in registry.names():
            console.print(f"{name:22} {registry.purpose(name)}", highlight=False)
        return 0
    setting = Setting(scale=arguments.scale, rounds=arguments.rounds)
    results = {}
    for name in arguments.names or registry.names():
        console.print(f"{name} …", highlight=False)
        results[name] = registry.run(name, setting)
    report.show(results, console)
    console.print(f"written to {report.save(results, setting, arguments.json)}", soft_wrap=True)
    if arguments.publish:
        figures.keep(results, setting)
        performance.write()
        console.print(f"and to {performance.PAGE}", soft_wrap=True)
    lines = [line for lines in results.values() for line in lines]
    return 0 if all(line.verdict is Verdict.MET for line in lines) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*registry.names(), []])
    parser.add_argument("--list", action="store_true", help="tell which benchmarks there are")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is the field's picture")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds of each pair")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    parser.add_argument(
        "--publish", action="store_true", help="keep the figures, and make docs/performance.md anew"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
