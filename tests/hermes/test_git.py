"""Git runs on a home's repositories, and nothing that they bring along does."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.errors import HomeError
from exporter.hermes.git import (
    ALLOWED_KEYS,
    GitFailedError,
    GitRefusedError,
    config_keys,
    refuse_unfit_repository,
    run_git,
    start_by_gitpython,
    start_plainly,
)
from tests.real.hermes import REPOSITORY
from tests.support.disk_homes import git, make_store

HOSTILE_LINES = [
    "[core]\n\thooksPath = {trap}",
    "[core]\n\tfsmonitor = {trap}/run",
    "[CORE]\n\tFSMonitor = {trap}/run",
    "[core] fsmonitor = {trap}/run",
    "[core]\n\tsshCommand = {trap}/run",
    "[core]\n\tpager = {trap}/run",
    "[core]\n\talternateRefsCommand = {trap}/run",
    "[include]\n\tpath = {trap}/more",
    '[includeIf "gitdir:/"]\n\tpath = {trap}/more',
    '[alias]\n\tfor-each-ref = "!{trap}/run"',
    "[filter.trap]\n\tclean = {trap}/run",
    '[filter "trap"]\n\tclean = {trap}/run',
    '[remote "origin"]\n\turl = ext::{trap}/run',
    "[credential]\n\thelper = {trap}/run",
    "[gpg]\n\tprogram = {trap}/run",
    "[extensions]\n\tworktreeConfig = true",
    "[extensions]\n\tpartialClone = origin",
    "[user]\n\tname = a\\\n[core]\n\tfsmonitor = {trap}/run",
    "\ufeff[core]\n\tbare = true",
    "stray = 1",
]
Ask = Callable[..., bytes]


@pytest.fixture(params=[start_plainly, start_by_gitpython])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Git, started in either way: what holds of one holds of the other."""
    return partial(run_git, start=request.param)


def test_a_store_as_hermes_configures_it_is_read(ask: Ask, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", ["0123456789abcdef"])
    output = ask(str(store), "for-each-ref", "--format=%(refname)")
    assert output == b"refs/hermes/0123456789abcdef\n"


def test_a_repository_made_with_a_work_tree_is_accepted(ask: Ask, tmp_path: Path) -> None:
    """Shadow repositories of old versions were made with GIT_WORK_TREE, which git notes down."""
    work = tmp_path / "work"
    work.mkdir()
    git(tmp_path, "init", "--quiet", GIT_DIR=str(tmp_path / "repo"), GIT_WORK_TREE=str(work))
    assert b"worktree" in (tmp_path / "repo/config").read_bytes()
    assert ask(str(tmp_path / "repo"), "for-each-ref") == b""


@pytest.mark.parametrize("lines", HOSTILE_LINES)
def test_a_configuration_that_holds_more_is_refused_and_nothing_runs(
    ask: Ask, tmp_path: Path, lines: str
) -> None:
    trap, store = _trap(tmp_path), make_store(tmp_path / "store", ["0123456789abcdef"])
    with (store / "config").open("a") as config:
        config.write(lines.format(trap=trap) + "\n")
    with pytest.raises(GitRefusedError):
        ask(str(store), "for-each-ref")
    assert not (trap / "sprung").exists()


def test_hooks_do_not_run(ask: Ask, tmp_path: Path) -> None:
    trap, store = _trap(tmp_path), make_store(tmp_path / "store", ["0123456789abcdef"])
    for hook in ("reference-transaction", "post-index-change", "pre-auto-gc"):
        os.symlink(trap / "run", store / "hooks" / hook)
    ask(str(store), "update-ref", "-d", "refs/hermes/0123456789abcdef")
    ask(str(store), "gc", "--auto")
    assert ask(str(store), "for-each-ref") == b""
    assert not (trap / "sprung").exists()


def test_neither_the_environment_nor_a_global_configuration_reaches_git(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap, store = _trap(tmp_path), make_store(tmp_path / "store", ["0123456789abcdef"])
    (tmp_path / ".gitconfig").write_text(f"[core]\n\thooksPath = {trap}\n")
    (trap / "reference-transaction").symlink_to(trap / "run")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    monkeypatch.setenv("GIT_EXEC_PATH", str(trap))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(trap / "run"))
    monkeypatch.setenv("PATH", str(trap))
    (trap / "git").symlink_to(trap / "run")
    ask(str(store), "update-ref", "-d", "refs/hermes/0123456789abcdef")
    assert not (trap / "sprung").exists()


def test_a_repository_that_leads_elsewhere_is_refused(ask: Ask, tmp_path: Path) -> None:
    real = make_store(tmp_path / "real", ["0123456789abcdef"])
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "file").write_text(f"gitdir: {real}\n")
    for place in (tmp_path / "link", tmp_path / "file"):
        with pytest.raises(GitRefusedError):
            ask(str(place), "for-each-ref")
    for redirection in ("commondir", "objects/info/alternates"):
        store = make_store(tmp_path / redirection.replace("/", "-"), ["0123456789abcdef"])
        (store / redirection).write_text(f"{real}\n")
        with pytest.raises(GitRefusedError, match=redirection):
            ask(str(store), "for-each-ref")


def test_a_configuration_that_is_no_small_regular_file_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [])
    (store / "config").rename(tmp_path / "config")
    (store / "config").symlink_to(tmp_path / "config")
    with pytest.raises(GitRefusedError):
        refuse_unfit_repository(str(store))
    (store / "config").unlink()
    os.mkfifo(store / "config")
    with pytest.raises(GitRefusedError):
        refuse_unfit_repository(str(store))
    (store / "config").unlink()
    (store / "config").write_bytes(b"#" * 100_000)
    with pytest.raises(GitRefusedError):
        refuse_unfit_repository(str(store))


def test_failures_are_errors_of_the_home(ask: Ask, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", ["0123456789abcdef"])
    with pytest.raises(GitFailedError, match="No such file"):
        ask(str(tmp_path / "none"), "for-each-ref")
    with pytest.raises(GitFailedError, match="cannot run git"):
        ask(str(store), "for-each-ref", program="no-such-git")
    with pytest.raises(GitFailedError, match="status 1"):
        ask(str(store), "no-such-command")
    with pytest.raises(GitFailedError, match="more than 5 bytes"):
        ask(str(store), "for-each-ref", output_bytes=5)
    assert issubclass(GitFailedError, HomeError)


def test_git_that_takes_too_long_is_ended(ask: Ask, tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [])
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    with pytest.raises(GitFailedError, match="took over"):
        ask(str(store), "for-each-ref", program=str(slow), timeout_seconds=0.2)


def test_git_that_does_not_want_to_end_is_killed_and_nothing_is_left_of_it(
    ask: Ask, tmp_path: Path
) -> None:
    store = make_store(tmp_path / "store", [])
    slow = _program(tmp_path, f"echo $$ > {tmp_path}/pid\ntrap '' TERM\nexec sleep 600")
    with pytest.raises(GitFailedError, match="took over"):
        ask(str(store), "for-each-ref", program=slow, timeout_seconds=1.0)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    assert psutil.Process().children() == []


def test_only_what_is_needed_is_in_the_environment_of_git(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GitPython passes on everything that is in its own."""
    names = ("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_TRACE", "GIT_SSH_COMMAND", "LD_PRELOAD")
    for name in (*names, "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_PYTHON_TRACE", "SECRET"):
        monkeypatch.setenv(name, f"{tmp_path}/none")
    store = make_store(tmp_path / "store", [])
    before = dict(os.environ)
    printed = ask(str(store), "for-each-ref", program=_program(tmp_path, "exec env -0"))
    told = dict(line.split("=", 1) for line in printed.decode().split("\0") if line)
    assert told.pop("GIT_DIR") == str(store)
    assert {name for name in told if name.startswith(("GIT", "LD"))} == {
        *("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL", "GIT_ATTR_NOSYSTEM"),
        *("GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "GIT_NO_LAZY_FETCH"),
        *("GIT_NO_REPLACE_OBJECTS", "GIT_ALLOW_PROTOCOL", "GIT_PAGER"),
    }
    of_the_shell = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert {name for name in told if not name.startswith("GIT")} - of_the_shell <= {
        *("PATH", "HOME", "XDG_CONFIG_HOME", "LC_ALL", "LANGUAGE")
    }
    assert told["PWD"] == "/"
    assert dict(os.environ) == before


def test_what_git_says_of_errors_blocks_nothing_and_is_told_nowhere(
    ask: Ask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """More than a pipe holds, of what a repository may have brought along."""
    caplog.set_level(logging.DEBUG)
    store = make_store(tmp_path / "store", [])
    noise = "yes secret | head -c 1000000 >&2"
    loud = _program(tmp_path, f"{noise}\necho fine")
    assert ask(str(store), "for-each-ref", program=loud) == b"fine\n"
    with pytest.raises(GitFailedError) as failed:
        ask(str(store), "for-each-ref", program=_program(tmp_path, f"{noise}\nexit 3"))
    assert str(failed.value) == f"git for-each-ref in {store} failed with status 3"
    with pytest.raises(GitFailedError) as failed:
        ask(str(store), "for-each-ref", program="no-such-git")
    assert str(failed.value) == "cannot run git: No such file or directory"
    assert "secret" not in caplog.text
    assert str(store) not in caplog.text


def test_the_environment_is_as_before_also_after_a_failure(ask: Ask, tmp_path: Path) -> None:
    store, before = make_store(tmp_path / "store", []), dict(os.environ)
    with pytest.raises(GitFailedError, match="cannot run git"):
        ask(str(store), "for-each-ref", program=str(tmp_path))
    assert dict(os.environ) == before


def test_loading_gitpython_runs_no_git(tmp_path: Path) -> None:
    """By itself it runs `git version`, whichever git the environment names."""
    trap = _trap(tmp_path)
    (trap / "git").symlink_to(trap / "run")
    program = (
        "import sys\n"
        "tried = []\n"
        "def note(event, of):\n"
        "    if event in ('subprocess.Popen', 'os.exec', 'os.posix_spawn', 'os.system'):\n"
        "        tried.append(of[0])\n"
        "sys.addaudithook(note)\n"
        "from exporter.hermes import git\n"
        "assert git._load_gitpython() is sys.modules['git']\n"
        "print(tried)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": str(trap), "GIT_PYTHON_GIT_EXECUTABLE": str(trap / "run")},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("['/dev/null']\n", "")
    assert not (trap / "sprung").exists()
    assert not os.access("/dev/null", os.X_OK)


def test_git_runs_also_where_gitpython_cannot_be_loaded(tmp_path: Path) -> None:
    """As in a worker that has become a user who cannot read the installation."""
    store = make_store(tmp_path / "store", ["0123456789abcdef"])
    program = (
        "import sys\n"
        "from exporter.hermes.git import run_git, start_by_gitpython\n"
        "class Unreadable:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        raise PermissionError(13, 'Permission denied', name)\n"
        "sys.meta_path.insert(0, Unreadable())\n"
        "print(run_git(sys.argv[1], 'for-each-ref', '--format=%(refname)',"
        " start=start_by_gitpython), 'git' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(store)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("b'refs/hermes/0123456789abcdef\\n' False\n", "")


@settings(deadline=None)
@given(st.lists(st.sampled_from(sorted(ALLOWED_KEYS)), unique=True))
def test_the_keys_that_are_found_are_those_that_git_finds(keys: list[str]) -> None:
    text = "".join("[{}]\n\t{} = x\n".format(*key.split(".")) for key in keys)
    listed = subprocess.run(
        ["git", "config", "--file", "-", "--name-only", "--list"],
        input=text.encode(),
        capture_output=True,
        check=True,
    ).stdout.decode()
    assert config_keys(text.encode(), "config") == set(listed.split()) == set(keys)


@settings(deadline=None)
@given(st.text(alphabet='[]core.user =\n\t\\"#;hooksPath!/x\r\x0b', max_size=60))
def test_no_text_hides_a_key_from_us_that_git_sees(text: str) -> None:
    """What we accept, git reads as the same keys."""
    listed = subprocess.run(
        ["git", "config", "--file", "-", "--name-only", "--list"],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    try:
        ours = config_keys(text.encode(), "config")
    except GitRefusedError:
        return
    if listed.returncode == 0:
        assert set(listed.stdout.decode().split("\n")) - {""} <= ours


def _program(folder: Path, lines: str) -> str:
    """A program to run in place of git."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


def _trap(tmp_path: Path) -> Path:
    """A folder with a program that leaves a file behind if it ever runs."""
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "run").write_text(f"#!/bin/sh\n: > {trap}/sprung\n")
    (trap / "run").chmod(0o755)
    (trap / "more").write_text(f"[core]\n\tfsmonitor = {trap}/run\n")
    return trap
