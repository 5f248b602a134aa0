"""Git runs on a home's repositories, and nothing that they bring along does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

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
)
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


def test_a_store_as_hermes_configures_it_is_read(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", ["0123456789abcdef"])
    output = run_git(str(store), "for-each-ref", "--format=%(refname)")
    assert output == b"refs/hermes/0123456789abcdef\n"


def test_a_repository_made_with_a_work_tree_is_accepted(tmp_path: Path) -> None:
    """Shadow repositories of old versions were made with GIT_WORK_TREE, which git notes down."""
    work = tmp_path / "work"
    work.mkdir()
    git(tmp_path, "init", "--quiet", GIT_DIR=str(tmp_path / "repo"), GIT_WORK_TREE=str(work))
    assert b"worktree" in (tmp_path / "repo/config").read_bytes()
    assert run_git(str(tmp_path / "repo"), "for-each-ref") == b""


@pytest.mark.parametrize("lines", HOSTILE_LINES)
def test_a_configuration_that_holds_more_is_refused_and_nothing_runs(
    tmp_path: Path, lines: str
) -> None:
    trap, store = _trap(tmp_path), make_store(tmp_path / "store", ["0123456789abcdef"])
    with (store / "config").open("a") as config:
        config.write(lines.format(trap=trap) + "\n")
    with pytest.raises(GitRefusedError):
        run_git(str(store), "for-each-ref")
    assert not (trap / "sprung").exists()


def test_hooks_do_not_run(tmp_path: Path) -> None:
    trap, store = _trap(tmp_path), make_store(tmp_path / "store", ["0123456789abcdef"])
    for hook in ("reference-transaction", "post-index-change", "pre-auto-gc"):
        os.symlink(trap / "run", store / "hooks" / hook)
    run_git(str(store), "update-ref", "-d", "refs/hermes/0123456789abcdef")
    run_git(str(store), "gc", "--auto")
    assert run_git(str(store), "for-each-ref") == b""
    assert not (trap / "sprung").exists()


def test_neither_the_environment_nor_a_global_configuration_reaches_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    run_git(str(store), "update-ref", "-d", "refs/hermes/0123456789abcdef")
    assert not (trap / "sprung").exists()


def test_a_repository_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    real = make_store(tmp_path / "real", ["0123456789abcdef"])
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "file").write_text(f"gitdir: {real}\n")
    for place in (tmp_path / "link", tmp_path / "file"):
        with pytest.raises(GitRefusedError):
            run_git(str(place), "for-each-ref")
    for redirection in ("commondir", "objects/info/alternates"):
        store = make_store(tmp_path / redirection.replace("/", "-"), ["0123456789abcdef"])
        (store / redirection).write_text(f"{real}\n")
        with pytest.raises(GitRefusedError, match=redirection):
            run_git(str(store), "for-each-ref")


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


def test_failures_are_errors_of_the_home(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", ["0123456789abcdef"])
    with pytest.raises(GitFailedError, match="No such file"):
        run_git(str(tmp_path / "none"), "for-each-ref")
    with pytest.raises(GitFailedError, match="cannot run git"):
        run_git(str(store), "for-each-ref", program="no-such-git")
    with pytest.raises(GitFailedError, match="status 1"):
        run_git(str(store), "no-such-command")
    with pytest.raises(GitFailedError, match="more than 5 bytes"):
        run_git(str(store), "for-each-ref", output_bytes=5)
    assert issubclass(GitFailedError, HomeError)


def test_git_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [])
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    with pytest.raises(GitFailedError, match="took over"):
        run_git(str(store), "for-each-ref", program=str(slow), timeout_seconds=0.2)


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


def _trap(tmp_path: Path) -> Path:
    """A folder with a program that leaves a file behind if it ever runs."""
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "run").write_text(f"#!/bin/sh\n: > {trap}/sprung\n")
    (trap / "run").chmod(0o755)
    (trap / "more").write_text(f"[core]\n\tfsmonitor = {trap}/run\n")
    return trap
