"""The commands and their options, taken from the parsers that read them."""

from __future__ import annotations

from argparse import Action
from dataclasses import dataclass

from exporter.cli import commands
from exporter.cli.parser import Parser


@dataclass(frozen=True, slots=True)
class Option:
    """One option, or an argument without a name."""

    names: tuple[str, ...]
    value: str
    """What its value is called in the help, such as FILE; empty if it takes none."""
    about: str
    common: bool
    """Whether every command has it."""
    optional: bool = True
    """Whether it may be left out."""


@dataclass(frozen=True, slots=True)
class CommandPage:
    """All that the help of one command tells."""

    name: str
    summary: str
    description: str
    examples: tuple[tuple[str, str], ...]
    arguments: tuple[Option, ...]
    options: tuple[Option, ...]


def pages() -> tuple[CommandPage, ...]:
    """Every command, in the order in which the help lists them."""
    parsers = {name: Parser(name, commands.load(name)) for name in commands.NAMES}
    shared = set.intersection(*({*_names(parser)} for parser in parsers.values()))
    return tuple(_page(name, parser, shared) for name, parser in parsers.items())


def _names(parser: Parser) -> list[str]:
    return [name for action in parser.shown_actions() for name in action.option_strings]


def _page(name: str, parser: Parser, shared: set[str]) -> CommandPage:
    command = commands.load(name)
    found = [_option(parser, action, shared) for action in parser.shown_actions()]
    return CommandPage(
        name=name,
        summary=command.SUMMARY,
        description=command.DESCRIPTION,
        examples=command.EXAMPLES,
        arguments=tuple(each for each in found if not each.names),
        options=tuple(each for each in found if each.names),
    )


def _option(parser: Parser, action: Action, shared: set[str]) -> Option:
    takes_value = action.nargs != 0
    return Option(
        names=tuple(action.option_strings),
        value=str(action.metavar or action.dest.upper()) if takes_value else "",
        about=parser.help_of(action),
        common=bool(shared & {*action.option_strings}),
        optional=action.nargs == "?" or bool(action.option_strings),
    )
