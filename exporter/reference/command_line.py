"""`python -m exporter.reference.command_line man|bash|zsh|fish`: the manual page, or completion.

Two development dependencies write them from our parsers: argparse-manpage and shtab. shtab does not
support fish, so its completion is written here. `make docs` puts them into deploy/.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from typing import cast

import shtab
from argparse_manpage.manpage import Manpage, bold  # type: ignore[import-untyped]

from exporter import __version__
from exporter.cli import arguments, commands
from exporter.cli.output import PROGRAM
from exporter.cli.parser import ENVIRONMENT, EXIT_STATUS, FILES, Parser

_DESCRIPTION = """\
One agent per host that shows what hermes-agent leaves behind: sessions that were never ended, and
the disk they fill. It serves Prometheus metrics for every Hermes home of every user.

It skips sessions that it cannot judge; their verdict is unknown. By default it changes nothing."""
_IDS = """grep -o '"%s": *"[^"]*"' | cut -d'"' -f4"""
_RUNS, _SESSIONS = ("history", "run"), ("sessions", "id")
"""The command that prints the ids, and their JSON key."""
_TAKES_RUN, _TAKES_SESSION = ("history", "undo", "purge"), ("explain",)
_WHERE = ("--home", "--state-dir", "--config.file", "--agent.socket")
"""Completion passes these options on to that command: they decide which ids there are."""
_PREAMBLE = {
    "bash": f"""
_hermes_exporter_ids() {{  # COMMAND KEY PREFIX
    local word before= given=()
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case $before in {"|".join(_WHERE)}) given+=("$before" "${{word/#\\~\\//$HOME/}}") ;; esac
        [[ $word != --no-agent ]] || given+=("$word")
        before=$word
    done
    compgen -W "$("${{COMP_WORDS[0]/#\\~\\//$HOME/}}" "$1" --json "${{given[@]}}" 2>/dev/null |
        {_IDS % "'$2'"})" -- "$3"
}}
_hermes_exporter_runs() {{ _hermes_exporter_ids {" ".join(_RUNS)} "$1"; }}
_hermes_exporter_sessions() {{ _hermes_exporter_ids {" ".join(_SESSIONS)} "$1"; }}
""",
    "zsh": f"""
_hermes_exporter_ids() {{  # COMMAND KEY
  local word before= ; local -a given ids
  for word in "${{(@)words[1,CURRENT-1]}}"; do
    case $before in {"|".join(_WHERE)}) given+=("$before" "${{word/#\\~\\//$HOME/}}") ;; esac
    case $word in
      {"|".join(f"{each}=*" for each in _WHERE)}|--no-agent)
        given+=("${{word/=\\~\\//=$HOME/}}") ;;
    esac
    before=$word
  done
  ids=(${{(f)"$(${{~_comp_command1:-hermes-exporter}} $1 --json $given 2>/dev/null |
    {_IDS % "'$2'"})"}})
  compadd -a ids
}}
_hermes_exporter_runs() {{ _hermes_exporter_ids {" ".join(_RUNS)} }}
_hermes_exporter_sessions() {{ _hermes_exporter_ids {" ".join(_SESSIONS)} }}
""",
    "fish": f"""
function __hermes_exporter_ids --argument-names command key
    set -l tokens (commandline -opc)
    set -l given
    set -l before
    for word in $tokens[2..]
        set word (string replace -r '^(--[a-z.-]+=)?~/' '$1'$HOME/ -- $word)
        contains -- "$before" {" ".join(_WHERE)}
        and set -a given $before $word
        string match -qr '^({"|".join(_WHERE)})=|^--no-agent$' -- $word
        and set -a given $word
        set before $word
    end
    $tokens[1] $command --json $given 2>/dev/null | {_IDS % "'$key'"}
end
""",
}
_EQUALS_SIGN = """
# bash cuts --option=value at the equals sign; shtab's function expects two words.
_hermes_exporter() {
    local word words=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do [[ $word == = ]] || words+=("$word"); done
    [[ ${COMP_WORDS[COMP_CWORD]} != = ]] || words+=("")
    local COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1))
    _shtab_hermes_exporter
}
complete -o bashdefault -F _hermes_exporter hermes-exporter
"""


def program(*, in_brief: bool = False) -> ArgumentParser:
    """Return the whole command line as one parser; `in_brief`: one line for each command."""
    parser = ArgumentParser(PROGRAM, f"{PROGRAM} COMMAND [OPTIONS]", _DESCRIPTION)
    # As wide as any text: the tools must not break lines, least of all at a hyphen.
    parser.formatter_class = lambda prog: RawDescriptionHelpFormatter(prog, width=10_000)
    parser.add_argument("--version", action="version", help="print the version")
    # argparse only calls this class, so a function will do.
    below = parser.add_subparsers(
        title="commands", prog=PROGRAM, parser_class=cast("type[ArgumentParser]", _command)
    )
    for name, summary in commands.summaries().items():
        command = below.add_parser(name, help=summary)
        if in_brief:
            command.description = summary
    below.add_parser("help", help="all about COMMAND; COMMAND --help fits one screen")
    return parser


def _command(prog: str, **_: object) -> ArgumentParser:
    name = prog.rpartition(" ")[2]
    if name == "help":
        parser = ArgumentParser(prog, f"{prog} [COMMAND]")
        about = "one of the commands above"
        parser.add_argument(
            "command", metavar="COMMAND", nargs="?", choices=commands.NAMES, help=about
        )
        return parser
    command = Parser(name, commands.load(name))
    for action in command.shown_actions():
        if isinstance(action.type, arguments.OneOf):
            action.choices = action.type.words
        elif action.type is arguments.directory:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar in ("RUN", "ID") and not action.option_strings:
            ids = (
                "_hermes_exporter_runs" if action.metavar == "RUN" else "_hermes_exporter_sessions"
            )
            action.complete = {"bash": ids, "zsh": ids}  # type: ignore[attr-defined]
        elif action.metavar == "FILE" or (action.dest == "path" and name != "files"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return command


def manual() -> str:
    """Return the manual page in roff with the man macros."""
    page = Manpage(program())
    page.description = "watch, reap and prune what hermes-agent leaves behind"
    page.source, page.manual = f"{PROGRAM} {__version__}", "User Commands"
    page.date = ""  # the day of `make docs` would change the page although nothing else has changed
    examples = [example for name in commands.NAMES for example in commands.load(name).EXAMPLES]
    for title, entries in (
        ("examples", [(line, purpose) for purpose, line in examples]),
        ("exit status", EXIT_STATUS),
        ("files", FILES),
        ("environment", ENVIRONMENT),
    ):
        text = "\n".join(f".TP\n{bold(name)}\n{about}" for name, about in entries)
        page.add_section(title, ">", text)
    page.add_section("see also", ">", ".BR prometheus (1),\n.BR prometheus\\-node\\-exporter (1)")
    return str(page)


def completion(shell: str) -> str:
    """Return the completion script for bash, zsh or fish."""
    if shell == "fish":
        lines = (f"complete -c {PROGRAM} {line}\n" for line in _fish())
        return _PREAMBLE[shell].lstrip() + "".join(lines)
    written = shtab.complete(program(in_brief=True), shell, preamble=_PREAMBLE[shell])
    if shell == "bash":
        return written + _EQUALS_SIGN
    return re.sub(r'(?m)^(  "\*?--[\w.-]+)(\[.*\]:)', r"\1=\2", written) + "\n"  # --option=value


def _fish() -> Iterator[str]:
    yield "-f"
    for name, summary in commands.summaries().items():
        yield f"-n __fish_use_subcommand -a {name} -d {_fish_word(summary)}"
    about = _fish_word("all about a command")
    yield f"-n __fish_use_subcommand -a help -d {about}"
    yield f"-n '__fish_seen_subcommand_from help' -a '{' '.join(commands.NAMES)}'"
    for name in commands.NAMES:
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        for action in Parser(name, commands.load(name)).shown_actions():
            for option in action.option_strings:
                kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
                files = action.metavar in ("FILE", "DIR", "PATH")
                value = "" if action.nargs == 0 else " -r -F" if files else " -x"
                if isinstance(action.type, arguments.OneOf):
                    value += f" -a '{' '.join(action.type.words)}'"
                yield f"{seen} {kind}{value} -d {_fish_word(action.help or '')}"
        if name in _TAKES_RUN:
            yield f"{seen} -a '(__hermes_exporter_ids {' '.join(_RUNS)})'"
        if name in _TAKES_SESSION:
            yield f"{seen} -a '(__hermes_exporter_ids {' '.join(_SESSIONS)})'"


def _fish_word(text: str) -> str:
    text = text.replace("%(default)s", "see the manual")
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


if __name__ == "__main__":
    sys.stdout.write(manual() if sys.argv[1] == "man" else completion(sys.argv[1]))
