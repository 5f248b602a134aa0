"""Completion for bash; `python -m exporter.reference.completion > hermes-exporter`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator

from exporter import logs
from exporter.cli.output import PROGRAM
from exporter.cli.render.blocks import VERDICT_TONES
from exporter.pruner.models import Policy
from exporter.reference.model import CommandPage, Option, pages

_WORDS = {
    "LEVEL": logs.LEVELS,
    "FORMAT": logs.FORMATS,
    "VERDICT": tuple(VERDICT_TONES),
    "NAME": tuple(Policy),
}
"""Values that are one of a few words."""
_DIRECTORIES = {"DIR"}
_FILES = {"FILE", "PATH"}
_FILENAMES = "compopt -o filenames 2>/dev/null"

_SCRIPT = """\
# Completion of {program} for bash, written from the command line itself.
_hermes_exporter() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
    local options= arguments=
    # bash cuts --option=value at the equals sign.
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${{COMP_WORDS[COMP_CWORD-2]}}
    fi
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=( $(compgen -W {commands} -- "$cur") )
        return
    fi
    case $prev in
{values}
    esac
    case ${{COMP_WORDS[1]}} in
{options}
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=( $(compgen -W "$options" -- "$cur") )
    elif [[ $arguments == files ]]; then
        {filenames}
        COMPREPLY=( $(compgen -f -- "$cur") )
    elif [[ $arguments ]]; then
        COMPREPLY=( $(compgen -W "$arguments" -- "$cur") )
    fi
}}
complete -F _hermes_exporter {program}
"""


def script() -> str:
    commands = pages()
    names = [each.name for each in commands]
    return _SCRIPT.format(
        program=PROGRAM,
        filenames=_FILENAMES,
        commands=shlex.quote(" ".join([*names, "help", "--help", "--version"])),
        values="\n".join(_values(commands)),
        options="\n".join([*map(_command, commands), f"        help) arguments={_list(names)} ;;"]),
    )


def _values(commands: tuple[CommandPage, ...]) -> Iterator[str]:
    """What follows an option that takes a value."""
    replies: dict[str, set[str]] = {}
    for command in commands:
        for option in command.options:
            if option.value:
                replies.setdefault(_reply(option), set()).update(option.names)
    for reply, names in replies.items():
        yield f"        {'|'.join(sorted(names))}) {reply}; return ;;"


def _reply(option: Option) -> str:
    if option.value in _WORDS:
        return f'COMPREPLY=( $(compgen -W {_list(_WORDS[option.value])} -- "$cur") )'
    if option.value in _DIRECTORIES or "--home" in option.names:
        return f'{_FILENAMES}; COMPREPLY=( $(compgen -d -- "$cur") )'
    if option.value in _FILES and "--web.telemetry-path" not in option.names:
        return f'{_FILENAMES}; COMPREPLY=( $(compgen -f -- "$cur") )'
    return ":"


def _command(command: CommandPage) -> str:
    options = _list([name for each in command.options for name in each.names])
    files = " arguments=files" if any(each.value in _FILES for each in command.arguments) else ""
    return f"        {command.name}) options={options}{files} ;;"


def _list(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


if __name__ == "__main__":
    sys.stdout.write(script())
