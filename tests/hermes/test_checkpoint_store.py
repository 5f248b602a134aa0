"""What is done to the checkpoint store goes through GitPython; what a scan worker asks does not."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import psutil
import pytest
from git import Git

from exporter.hermes import checkpoint_store
from exporter.hermes.checkpoints import StoreReader
from exporter.hermes.git import GitFailedError
from tests.support.disk_homes import make_store

PROJECT = "0123456789abcdef"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The git commands that GitPython has started, without their arguments."""
    commands: list[str] = []
    execute = Git.execute

    def noted(self: Git, command: list[str], **options: Any) -> Any:
        commands.append(next(word for word in command[2:] if word != "-c" and "=" not in word))
        return execute(self, command, **options)

    monkeypatch.setattr(Git, "execute", noted)
    return commands


def test_a_project_is_bundled_taken_and_given_back_by_gitpython(
    started: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store, bundle = str(make_store(tmp_path / "store", [PROJECT])), str(tmp_path / "bundle")
    tip = checkpoint_store.read_tip(store, PROJECT)
    assert tip is not None
    checkpoint_store.write_bundle(store, PROJECT, bundle)
    (tmp_path / "scratch").mkdir()
    checkpoint_store.verify_bundle(bundle, str(tmp_path / "scratch"), tip)
    checkpoint_store.delete_ref(store, PROJECT, tip)
    assert checkpoint_store.read_tip(store, PROJECT) is None
    checkpoint_store.collect_garbage(store)
    checkpoint_store.take_bundle(store, bundle)
    checkpoint_store.create_ref(store, PROJECT, tip)
    assert checkpoint_store.read_tip(store, PROJECT) == tip
    assert checkpoint_store.is_built_on(store, tip, tip)
    assert started == [
        *("bundle", "init", "bundle", "rev-list", "update-ref"),
        *("gc", "bundle", "update-ref", "merge-base"),
    ]
    assert psutil.Process().children() == []
    assert caplog.records == []


def test_what_gitpython_cannot_do_is_told_in_our_words(
    started: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = str(make_store(tmp_path / "store", [PROJECT]))
    with pytest.raises(GitFailedError) as failed:
        checkpoint_store.delete_ref(store, PROJECT, "1" * 40)
    assert str(failed.value) == f"git update-ref in {store} failed with status 1"
    assert started == ["update-ref"]
    assert caplog.records == []


def test_a_scan_asks_git_without_gitpython(started: list[str], tmp_path: Path) -> None:
    """It would stay in the memory of the scan worker."""
    store = make_store(tmp_path / "store", [PROJECT])
    projects = StoreReader(bytes(store), str(store)).read(0.0)
    assert [project.name for project in projects] == [PROJECT]
    assert checkpoint_store.read_tip(str(store), PROJECT) is not None
    assert started == []
