"""The manual page and the completion know every command and option there is."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.cli import commands
from exporter.cli.parser import Parser
from exporter.reference import command_line
from tests.real.hermes import REPOSITORY
from tests.real.terminal import Terminal, terminal


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page as `man` shows it, which has nothing to complain of."""
    file = tmp_path_factory.mktemp("man") / "hermes-exporter.1"
    file.write_text(command_line.manual())
    done = subprocess.run(
        ["man", "--warnings", "--local-file", file],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "MANWIDTH": "200", "LANG": "C.UTF-8", "MANPAGER": "cat"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_manual_tells_of_every_command_and_option(page: str) -> None:
    for name in commands.NAMES:
        command = commands.load(name)
        options = Parser(name, command).shown_actions()
        assert f"\nCOMMAND 'hermes-exporter {name}'\n" in page
        assert all(string in page for option in options for string in option.option_strings)
        assert all(line in page for _, line in command.EXAMPLES)


def test_the_manual_has_the_sections_people_look_for(page: str) -> None:
    for title in ("NAME", "SYNOPSIS", "EXIT STATUS", "FILES", "ENVIRONMENT"):
        assert f"\n{title}\n" in page


def test_make_docs_was_run_since_the_command_line_changed() -> None:
    """The completion for fish stands for all four files: our own code alone writes it."""
    shipped = REPOSITORY / "deploy" / "completion" / "hermes-exporter.fish"
    assert shipped.read_text() == command_line.completion("fish"), "run `make docs`"


def test_the_manual_is_the_same_on_every_day() -> None:
    assert command_line.manual().startswith('.TH HERMES\\-EXPORTER "1" "" ')


def completed(folder: Path, *words: str) -> list[str]:
    """What bash offers after these words, the last of which is unfinished."""
    file = folder / "completion"
    file.write_text(command_line.completion("bash"))
    lines = [
        f"source {file}",
        f"COMP_WORDS=({shlex.join(('hermes-exporter', *words))}) COMP_CWORD={len(words)}",
        "_hermes_exporter",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_and_their_values(tmp_path: Path) -> None:
    assert completed(tmp_path, "se") == ["serve", "sessions"]
    assert set(commands.NAMES) <= set(completed(tmp_path, ""))
    assert completed(tmp_path, "serve", "--web.l") == ["--web.listen-address"]
    assert completed(tmp_path, "status", "--web.l") == []
    assert completed(tmp_path, "serve", "--log.format", "") == ["logfmt", "json"]
    assert completed(tmp_path, "serve", "--log.level", "=", "w") == ["warn"]
    assert completed(tmp_path, "serve", "--log.format", "=") == ["logfmt", "json"]
    assert completed(tmp_path, "help", "expl") == ["explain"]


def test_bash_completes_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "here.yml").touch()
    (tmp_path / "home").mkdir()
    assert completed(tmp_path, "serve", "--config.file", "here") == ["here.yml"]
    assert completed(tmp_path, "serve", "--home", "h") == ["home"]
    assert completed(tmp_path, "textfile", "here") == ["here.yml"]


RUN, OTHER_RUN = "20260131T093000-3f2a", "20270131T093000-3f2a"
SESSION = "20260131_093000_abc"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Another program of this name, with a run of its own in the home `other`."""
    file = tmp_path / "hermes-exporter"
    file.write_text(f"""#!/bin/sh
case $* in
    "history --json") echo '[{{"run": "{RUN}"}}]' ;;
    "history --json --home $HOME/other --state-dir s") echo '[{{"run": "{OTHER_RUN}"}}]' ;;
    "history --json --home=$HOME/other --state-dir s") echo '[{{"run": "{OTHER_RUN}"}}]' ;;
    "sessions --json --no-agent") echo '[{{"home": "x", "id": "{SESSION}"}}]' ;;
esac
""")
    file.chmod(0o755)
    return file


ELSEWHERE = [["--home", "~/other", "--state-dir", "s"], ["--home=~/other", "--state-dir", "s"]]


def test_bash_completes_the_ids_of_runs_and_sessions(program: Path) -> None:
    folder = program.parent
    for command in ("undo", "purge", "history"):
        assert completed(folder, command, "20") == [RUN]
    assert completed(folder, "explain", "--no-agent", "2") == [SESSION]
    for words in (ELSEWHERE[0], ["--home", "=", "~/other", "--state-dir", "s"]):
        assert completed(folder, "undo", *words, "20") == [OTHER_RUN]


def by_fish(folder: Path, line: str) -> list[str]:
    """What fish offers after this line."""
    script = folder / "completion.fish"
    script.write_text(command_line.completion("fish"))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; complete -C {shlex.quote(line)}"],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return [each.partition("\t")[0] for each in done.stdout.splitlines()]


def test_fish_completes_commands_options_values_files_and_ids(program: Path) -> None:
    folder = program.parent
    (folder / "here.yml").touch()
    assert sorted(by_fish(folder, "hermes-exporter se")) == ["serve", "sessions"]
    assert set(by_fish(folder, "hermes-exporter ")) >= set(commands.NAMES)
    assert by_fish(folder, "hermes-exporter serve --web.l") == ["--web.listen-address"]
    assert by_fish(folder, "hermes-exporter status --web.l") == []
    assert by_fish(folder, "hermes-exporter serve --log.format l") == ["logfmt"]
    assert by_fish(folder, "hermes-exporter serve --config.file here") == ["here.yml"]
    assert by_fish(folder, "hermes-exporter help expl") == ["explain"]
    assert by_fish(folder, "hermes-exporter undo 20") == [RUN]
    assert by_fish(folder, "hermes-exporter explain --no-agent 20") == [SESSION]
    for words in ELSEWHERE:
        assert by_fish(folder, f"hermes-exporter undo {' '.join(words)} 20") == [OTHER_RUN]


@contextmanager
def zsh(folder: Path) -> Iterator[Terminal]:
    """A zsh in which the completion works, with an empty line to type on."""
    (folder / "functions").mkdir(exist_ok=True)
    (folder / "functions" / "_hermes-exporter").write_text(command_line.completion("zsh"))
    (folder / ".zshrc").write_text(
        f"path=({folder} $path) fpath=({folder}/functions $fpath) PROMPT='ready> '\n"
        "unsetopt beep\nautoload -Uz compinit && compinit -u -D\n"
    )
    environment = {**os.environ, "HOME": str(folder), "ZDOTDIR": str(folder)}
    with terminal(["zsh", "-i"], environment, folder) as screen:
        screen.wait_for("ready>")
        yield screen


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("ses", "sessions"),
        ("serve --web.l", "--web.listen-address"),
        ("serve --log.format l", "logfmt"),
        ("serve --config.file here", "here.yml"),
        ("undo 20", RUN),
        ("purge 20", RUN),
        ("history 20", RUN),
        ("explain --no-agent 2", SESSION),
        *((f"undo {' '.join(words)} 20", OTHER_RUN) for words in ELSEWHERE),
    ],
)
def test_zsh_completes_what_is_typed(program: Path, typed: str, shown: str) -> None:
    (program.parent / "here.yml").touch()
    with zsh(program.parent) as screen:
        screen.press(f"hermes-exporter {typed}\t")
        screen.wait_for(shown)


def test_zsh_lists_every_command_with_what_it_does(program: Path) -> None:
    with zsh(program.parent) as screen:
        screen.press("hermes-exporter \t")
        for name, summary in commands.summaries().items():
            screen.wait_until_shown(
                lambda name=name, summary=summary: (
                    re.search(  # type: ignore[misc]
                        rf"{name} +-- {re.escape(summary[:40])}", screen.output
                    )
                    is not None
                ),
                f"{name} is listed",
            )
