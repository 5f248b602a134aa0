"""The command line as a user sees it: help, mistakes, and every exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.agent.options import Options
from exporter.cli import arguments, commands, main, output
from exporter.cli.parser import Parser
from exporter.cli.render.blocks import Cell, Line
from exporter.config import paths
from exporter.errors import ConfigError, ExporterError
from tests.real.hermes import REPOSITORY
from tests.support import logging_state

ROOT = REPOSITORY


@pytest.fixture(autouse=True)
def preserved_logging() -> Iterator[None]:
    with logging_state.preserved():
        yield


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, "-m", "exporter", *words],
        cwd=ROOT,
        env=environ,
        text=True,
        capture_output=True,
    )


def parsed(*words: str) -> Options:
    name, *rest = words
    return arguments.options(Parser(name, commands.load(name)).parse(rest))


class Fake:
    """A command that ends in the way the test says."""

    SUMMARY = DESCRIPTION = "fails"
    EXAMPLES: tuple[tuple[str, str], ...] = ()

    def __init__(self, end: Callable[[], int]) -> None:
        self._end = end

    def add_arguments(self, parser: ArgumentParser) -> None:
        pass

    def run(self, args: Namespace) -> int:
        return self._end()


def ending(failure: BaseException, *words: str) -> int:
    def fail() -> int:
        raise failure

    return main.main(["status", *words], load=lambda _: Fake(fail))


# Help


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_lists_every_command(word: str) -> None:
    answer = run(word)
    assert answer.returncode == 0
    for name in commands.NAMES:
        assert f"\n  {name} " in answer.stdout
    for heading in (
        *("commands:", "common options:", "examples:", "exit status:", "files:"),
        "environment:",
    ):
        assert f"\n{heading}\n" in answer.stdout


@pytest.mark.parametrize("name", commands.NAMES)
def test_the_help_of_a_command_answers_like_a_man_page(name: str) -> None:
    answer = run(name, "--help")
    assert answer.returncode == 0
    assert "\nexamples:\n" in answer.stdout
    assert f"  hermes-exporter {name}" in answer.stdout
    assert answer.stdout.endswith(f"are in 'hermes-exporter help {name}'.\n")
    assert "common options" not in answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert len(answer.stdout.splitlines()) <= 23, "a screen has 24 lines; the prompt takes the last"


@pytest.mark.parametrize("name", commands.NAMES)
def test_help_of_a_command_has_all_that_its_short_help_leaves_out(name: str) -> None:
    answer = run("help", name)
    assert answer.returncode == 0
    command = commands.load(name)
    assert command.DESCRIPTION in answer.stdout
    for title in ("common options:", "exit status:", "files:", "environment:"):
        assert f"\n{title}\n" in answer.stdout
    for _, example in command.EXAMPLES:
        assert f"  {example}\n" in answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 80


@pytest.mark.parametrize("name", commands.NAMES)
def test_every_example_in_the_help_is_valid(name: str) -> None:
    for _, line in commands.load(name).EXAMPLES:
        words = line.removeprefix("sudo ").split()
        assert words[:2] == ["hermes-exporter", name]
        Parser(name, commands.load(name)).parse(words[2:])


def test_version() -> None:
    answer = run("--version")
    assert (answer.returncode, answer.stdout) == (0, "hermes-exporter 0.1.0\n")


# Mistakes

SEE = "(see 'hermes-exporter --help')"
BAD_USAGE = {
    "": f"no command given; to serve metrics: 'hermes-exporter serve' {SEE}",
    "statsu": f"unknown command 'statsu', did you mean 'status'? {SEE}",
    "xyzzy": f"unknown command 'xyzzy' {SEE}",
    "help chekc": f"unknown command 'chekc', did you mean 'check'? {SEE}",
    "--home /x": f"options come after the command: 'hermes-exporter serve --home /x' {SEE}",
    "--home /x status": f"options come after the command: 'hermes-exporter status --home /x' {SEE}",
    "status --hoem /x": "unknown option '--hoem', did you mean '--home'? "
    "(see 'hermes-exporter status --help')",
    "status --hom=/x": "unknown option '--hom', did you mean '--home'? "
    "(see 'hermes-exporter status --help')",
    "status --js": "unknown option '--js', did you mean '--json'? "
    "(see 'hermes-exporter status --help')",
    "status now": "unexpected argument 'now' (see 'hermes-exporter status --help')",
    "status --home": "argument --home: expected one argument (see 'hermes-exporter status --help')",
    "status --home=": "argument --home: expected a directory (see 'hermes-exporter status --help')",
    "status --log.level=wran": "argument --log.level: unknown value 'wran', "
    "did you mean 'warn'? (see 'hermes-exporter status --help')",
    "status --log.format xml": "argument --log.format: unknown value 'xml', "
    "use logfmt or json (see 'hermes-exporter status --help')",
    "sessions --verdict deda": "argument --verdict: unknown value 'deda', "
    "did you mean 'dead'? (see 'hermes-exporter sessions --help')",
    "prune --policy old_session": "argument --policy: unknown value 'old_session', "
    "did you mean 'old_sessions'? (see 'hermes-exporter prune --help')",
    "demo --home /x": "demo serves a home of its own; to serve yours: 'serve --home PATH'",
    "textfile": "the following arguments are required: PATH "
    "(see 'hermes-exporter textfile --help')",
    "serve --no-collector.dsk": "unknown option '--no-collector.dsk', "
    "did you mean '--no-collector.disk'? (see 'hermes-exporter serve --help')",
    "serve --web.listen-address=10749": "bad listen address '10749': expected HOST:PORT or :PORT",
    "serve --web.listen-address=unix:here": "bad listen address 'unix:here': "
    "expected unix:/an/absolute/path",
    "serve --web.config.file=/nowhere/web.yaml": "/nowhere/web.yaml: cannot be read: "
    "No such file or directory; check --web.config.file",
    "status --\x1b[31m": "unknown option '--\\x1b[31m' (see 'hermes-exporter status --help')",
}


@pytest.mark.parametrize(("line", "expected"), BAD_USAGE.items())
def test_bad_usage_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], line: str, expected: str
) -> None:
    assert main.main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.err == f"hermes-exporter: {expected}\n"
    assert captured.out == ""


def test_the_process_ends_with_the_status_and_the_line() -> None:
    answer = run("statsu")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("hermes-exporter: unknown command 'statsu'")


def test_options_cannot_be_abbreviated() -> None:
    """A shortened flag would change its meaning on the day a longer one is added."""
    assert run("serve", "--web.listen=:1").returncode == 2


# Options


def test_options_default_to_what_help_says() -> None:
    assert parsed("demo", "--state-dir", "/s") == Options(state_dir="/s", names_own_files=True)


def test_options_reach_the_command() -> None:
    assert parsed(
        "serve",
        "--config.file=c.yaml",
        "--home=/a/",
        "--home",
        "/b",
        "--state-dir=/s",
        "--log.level=debug",
        "--log.format=json",
        "--web.listen-address=[::1]:0",
        "--web.telemetry-path=/m",
        "--web.enable-lifecycle",
        "--no-collector.disk",
        "--no-collector.usage",
        "--collector.usage",
    ) == Options(
        config_file="c.yaml",
        looks_for_config=True,
        names_own_files=True,
        homes=("/a", "/b"),
        state_dir="/s",
        log_level="debug",
        log_format="json",
        listen_addresses=("[::1]:0",),
        telemetry_path="/m",
        enable_lifecycle=True,
        disabled_collectors=frozenset({"disk"}),
    )


def test_a_tilde_that_no_shell_expanded_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert parsed("status", "--home=~/.hermes").homes == ("/home/ada/.hermes",)


def test_commands_for_people_log_only_warnings_by_default() -> None:
    assert parsed("status").log_level == "warn"
    assert parsed("serve").log_level == "info"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that the packaged service reads."""
    file = tmp_path / "service.yml"
    monkeypatch.setattr(paths, "SYSTEM_CONFIG_FILE", str(file))
    return file


def test_a_command_by_hand_goes_by_what_the_service_goes_by_and_says_so(
    service: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parsed("prune").config_file is None
    assert capsys.readouterr().err == ""
    service.write_text("prune: {keep: {newest: 7}}\n")
    said = f"configuration: {service}; --config.file names another"
    assert (parsed("prune").config_file, parsed("prune").config_note) == (str(service), said)
    assert capsys.readouterr() == ("", "")  # an agent may answer, with its own
    assert parsed("textfile", "hermes.prom").config_file == str(service)
    assert capsys.readouterr() == ("", f"hermes-exporter: {said}\n")
    assert parsed("prune", "--config.file", "mine.yml").config_file == "mine.yml"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["serve", "demo"])
def test_only_what_takes_homes_lists_the_option(name: str) -> None:
    assert ("--home," in run(name, "--help").stdout) == (name == "serve")


def test_a_demo_reads_only_what_it_is_given(
    service: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.write_text("prune: {mode: enforce}\n")
    assert (parsed("demo").config_file, parsed("demo").looks_for_config) == (None, False)
    assert parsed("serve").looks_for_config
    assert capsys.readouterr().err == ""


def test_a_mistake_in_the_file_of_the_service_is_told_as_any_other(
    service: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.write_text("prune: {mode: enforced}\n")
    assert main.main(["status", "--no-agent"]) == 2
    problem = "prune.mode: unknown mode 'enforced', did you mean 'enforce'?"
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == [f"hermes-exporter: {service}:1: {problem}"]


def test_a_user_who_may_not_read_the_file_of_the_service_is_told(
    service: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broken link stands for a file without permission to read: root may read all files."""
    service.symlink_to("nowhere")
    assert parsed("status").config_file is None
    said = f"configuration: the defaults, for {service} cannot be read as this user"
    assert parsed("status").config_note == said
    assert parsed("textfile", "hermes.prom").config_file is None
    assert capsys.readouterr().err == f"hermes-exporter: {said}\n"


# Endings


def test_a_failure_is_one_line_with_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(ExporterError("cannot read X: gone; left Y untouched")) == 1
    assert capsys.readouterr().err == "hermes-exporter: cannot read X: gone; left Y untouched\n"


def test_each_problem_of_a_configuration_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(ConfigError("a.yaml:1: x: bad\na.yaml:2: y: bad")) == 2
    expected = "hermes-exporter: a.yaml:1: x: bad\nhermes-exporter: a.yaml:2: y: bad\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("name", [each for each in commands.NAMES if each != "files"])
def test_no_command_starts_with_a_bad_configuration(name: str, tmp_path: Path) -> None:
    file = tmp_path / "exporter.yaml"
    file.write_text("prune: {thresholds: {disk_used: {high: 80%}}}\n")
    words = [name, f"--config.file={file}", f"--state-dir={tmp_path}/state"]
    operand = {
        "textfile": [f"{tmp_path}/x.prom"],
        "explain": ["20260131_093000_3f2a1b"],
        "undo": ["--last"],
        "purge": ["--yes"],
    }
    answer = run(*words, *operand.get(name, []))
    assert answer.returncode == 2
    assert answer.stderr == (
        f"hermes-exporter: {file}:1: prune.thresholds.disk_used: "
        "low must be below high, e.g. {high: 90%, low: 85%}; "
        "low is not given, so it is the default 85%\n"
    )
    assert not (tmp_path / "x.prom").exists()


def test_an_interrupt_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(KeyboardInterrupt()) == 130
    assert capsys.readouterr() == ("", "")


def test_a_failed_system_call_names_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(PermissionError(13, "Permission denied", "/x\ny")) == 1
    assert capsys.readouterr().err == "hermes-exporter: /x\\ny: Permission denied\n"


def test_a_bug_is_one_line_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(ZeroDivisionError("a\nb")) == 1
    assert capsys.readouterr().err == (
        "hermes-exporter: internal error: ZeroDivisionError: a\\nb; "
        "run with --log.level=debug for details\n"
    )


def test_the_traceback_of_a_bug_is_a_field_of_the_debug_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ending(ZeroDivisionError("a"), "--log.level=debug") == 1
    first, second, *rest = capsys.readouterr().err.splitlines()
    assert 'msg="internal error" traceback="Traceback (most recent call last):\\n' in first
    assert second.startswith("hermes-exporter: internal error")
    assert rest == []


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """`hermes-exporter --help | head -1`: silent, like other programs that SIGPIPE kills."""
    reader, writer = os.pipe()
    os.close(reader)
    answer = subprocess.run(
        [sys.executable, "-m", "exporter", "--help"],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert (answer.returncode, answer.stderr) == (141, "")


def test_a_full_disk_is_told() -> None:
    with open("/dev/full", "wb") as full:
        answer = subprocess.run(
            [sys.executable, "-m", "exporter", "--help"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    expected = "hermes-exporter: cannot write to standard output: No space left on device\n"
    assert (answer.returncode, answer.stderr) == (1, expected)


@pytest.mark.parametrize("name", ["serve", "demo", "textfile"])
def test_no_daemon_imports_rich(name: str) -> None:
    """It costs tens of milliseconds and megabytes at the start, and only tables need it."""
    program = (
        "import sys\n"
        "from exporter.cli import commands\n"
        "from exporter.cli.main import main\n"
        f"try: main([{name!r}, '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('rich' in sys.modules)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True)
    assert answer.returncode == 0, answer.stderr


def test_commands_to_copy_name_the_program_as_it_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After `make run` the program is in a folder that `PATH` has not."""
    program = tmp_path / "hermes-exporter"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    lines = [Line((Cell("hermes-exporter undo RUN"),), 1, whole=True)]
    output.show(lines)
    assert capsys.readouterr().out == f"  {program} undo RUN\n"
    monkeypatch.setenv("PATH", str(tmp_path))
    output.show(lines)
    assert capsys.readouterr().out == "  hermes-exporter undo RUN\n"
