"""The manual page and the completion know every command and option there is."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from exporter.cli import commands
from exporter.cli.parser import Parser
from exporter.reference import command_line


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
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
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


def test_bash_completes_the_ids_of_runs_and_sessions(tmp_path: Path) -> None:
    """They are asked of the program, which is another one here."""
    program = tmp_path / "hermes-exporter"
    program.write_text("""#!/bin/sh
case $1 in
    history) echo '[{"run": "20260131T093000-3f2a"}]' ;;
    sessions) echo '[{"home": "x", "id": "20260131_093000_abc"}]' ;;
esac
""")
    program.chmod(0o755)
    for command in ("undo", "purge", "history"):
        assert completed(tmp_path, command, "2026") == ["20260131T093000-3f2a"]
    assert completed(tmp_path, "explain", "2") == ["20260131_093000_abc"]


def test_fish_has_every_command_option_and_the_ids() -> None:
    script = command_line.completion("fish")
    for name in commands.NAMES:
        assert f"-n __fish_use_subcommand -a {name} " in script
    assert "-n '__fish_seen_subcommand_from prune' -l older-than -x -d " in script
    assert "-n '__fish_seen_subcommand_from undo' -a '(hermes-exporter history --json" in script
    assert all(line.count("'") % 2 == 0 for line in script.replace("\\'", "").splitlines())


def test_zsh_has_a_completion_with_every_command() -> None:
    script = command_line.completion("zsh")
    assert script.startswith("#compdef hermes-exporter\n")
    assert all(f"_shtab_hermes_exporter_{name}_options" in script for name in commands.NAMES)
