"""The manual page; `python -m exporter.reference.manual > hermes-exporter.1`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from exporter import __version__
from exporter.cli.output import PROGRAM
from exporter.cli.parser import ENVIRONMENT, EXIT_STATUS, FILES
from exporter.reference.model import CommandPage, Option, pages

_DESCRIPTION = """\
One agent per host that shows what hermes-agent leaves behind: sessions that were never ended, and
the disk they fill. It serves Prometheus metrics for every Hermes home of every user.

What it cannot see it calls unknown, and leaves alone. Out of the box it changes nothing."""


def page() -> str:
    """The page in roff with the man macros."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    commands = pages()
    yield '.\\" Written from the command line itself.'
    yield f'.TH HERMES\\-EXPORTER 1 "" "{PROGRAM} {__version__}" "User Commands"'
    yield from (".SH NAME", f"{_text(PROGRAM)} \\- see, reap and prune what hermes\\-agent leaves")
    yield from (".SH SYNOPSIS", f".B {_text(PROGRAM)}", ".I COMMAND", "[\\fIOPTIONS\\fR]")
    yield from (".SH DESCRIPTION", *_paragraphs(_DESCRIPTION))
    yield from (".SH COMMANDS", *_entries((each.name, each.summary) for each in commands))
    yield from (".SH OPTIONS OF EVERY COMMAND", *_options(_common(commands)))
    for command in commands:
        yield from _command(command)
    yield from (".SH EXIT STATUS", *_entries(EXIT_STATUS))
    yield from (".SH FILES", *_entries(FILES))
    yield from (".SH ENVIRONMENT", *_entries(ENVIRONMENT))
    yield from (".SH SEE ALSO", ".BR prometheus (1),", ".BR prometheus\\-node\\-exporter (1)")


def _command(command: CommandPage) -> Iterator[str]:
    places = "".join(
        f" [{each.value}]" if each.optional else f" {each.value}" for each in command.arguments
    )
    yield f".SH {_text(f'{PROGRAM} {command.name}{places}'.upper())}"
    yield from _paragraphs(command.description)
    yield from _options(command.arguments)
    yield from _options(each for each in command.options if not each.common)
    for purpose, line in command.examples:
        yield from (".PP", f"{_text(purpose[0].upper() + purpose[1:])}:")
        yield from (".PP", ".nf", f".RS\n{_text(line)}\n.RE", ".fi")


def _common(commands: Sequence[CommandPage]) -> list[Option]:
    """Those of all commands, as most of them describe them: `serve` has some other defaults."""
    told = Counter(option for each in commands for option in each.options if option.common)
    most = {option.names: option for option, _ in reversed(told.most_common())}
    return [most[each.names] for each in commands[0].options if each.common]


def _options(options: Iterable[Option]) -> Iterator[str]:
    for option in options:
        names = ", ".join(f"\\fB{_text(name)}\\fR" for name in option.names)
        value = f"\\fI{_text(option.value)}\\fR" if option.value else ""
        yield from (".TP", " ".join(part for part in (names, value) if part), _text(option.about))


def _entries(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, about in entries:
        yield from (".TP", f"\\fB{_text(name)}\\fR", _text(about))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        lines = paragraph.split("\n")
        if all(line.startswith("  ") for line in lines):  # a list, laid out as it is to be read
            yield from (".PP", ".nf", *(_text(line) for line in lines), ".fi")
        else:
            yield from (".PP", _text(" ".join(paragraph.split())))


def _text(words: str) -> str:
    """Plain words: nothing in them may be read as an instruction of roff."""
    safe = words.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{safe}" if safe.startswith(".") else safe


if __name__ == "__main__":
    sys.stdout.write(page())
