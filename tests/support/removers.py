"""Homes to take things from, and removers called as a run would call them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import structs

from exporter.pruner.apply.remover import Remover
from exporter.pruner.expected import ExpectedFile, ExpectedFolder, ExpectedProject, as_keys
from exporter.pruner.models import Act
from exporter.runs.folder import run_folder
from exporter.runs.models import Action, RecordedAction
from exporter.runs.trash import RunTrash, trash_of

RUN = "20260101T000000-abcd"


def action(
    act: Act,
    target: str,
    before: dict[str, Any],
    *,
    policy: str = "request_dumps",
    number: int = 0,
    run: str = RUN,
) -> RecordedAction:
    """An action as the journal knows it before it is taken."""
    planned = Action(act, target, "it is old", before, policy)
    return RecordedAction(planned, run=run, number=number)


def renamed(recorded: RecordedAction, target: str, policy: str = "") -> RecordedAction:
    """The same action on another target."""
    action = structs.replace(recorded.action, target=target, policy=policy)
    return structs.replace(recorded, action=action)


def planned_file(home: Path, target: str, number: int = 0, **more: Any) -> RecordedAction:
    """As a plan that is made now would want it."""
    more.setdefault("policy", _policy_for(target))
    before = as_keys(ExpectedFile.of(os.lstat(os.path.join(home, target))))
    return action(Act.DELETE_FILE, target, dict(before), number=number, **more)


def _policy_for(target: str) -> str:
    """The policy whose files have such names."""
    if target.startswith("checkpoints/"):
        return "orphan_checkpoints"
    return "request_dumps" if "/request_dump_" in target else "orphan_files"


def planned_repo(home: Path, target: str, number: int = 0) -> RecordedAction:
    before = as_keys(ExpectedFolder.of(os.lstat(os.path.join(home, target))))
    return action(Act.DELETE_REPO, target, dict(before), policy="stale_checkpoints", number=number)


def planned_project(home: Path, name: str, number: int = 0) -> RecordedAction:
    before = as_keys(ExpectedProject.of(str(home / "checkpoints/store"), name))
    return action(Act.DELETE_PROJECT, name, dict(before), policy="stale_checkpoints", number=number)


@contextmanager
def trash(home: Path, run: str = RUN, owner: int | None = None) -> Iterator[RunTrash]:
    owner = os.geteuid() if owner is None else owner
    with run_folder(str(home), owner, create=True) as folder:
        assert folder is not None
        with trash_of(folder, run, create=True) as opened:
            assert opened is not None
            yield opened


def take(remover: Remover, home: Path, *actions: RecordedAction) -> list[str]:
    """Return the remover's answer for each action; empty where it was taken."""
    with trash(home) as opened:
        return [remover.take(each, opened) for each in actions]


def restore(remover: Remover, home: Path, *actions: RecordedAction) -> list[str]:
    with trash(home) as opened:
        return [remover.restore(each, opened) for each in actions]


def taken(remover: Remover, home: Path, *actions: RecordedAction) -> list[bool]:
    with trash(home) as opened:
        return [remover.was_taken(each, opened) for each in actions]


def picture(place: Path, without: tuple[str, ...] = (".hermes-exporter",)) -> dict[str, Any]:
    """Return everything below a folder: kind, owner, mode, links, bytes, and times except of
    folders.

    It uses no code under test.
    """
    seen: dict[str, Any] = {}
    for folder, folders, files in os.walk(os.fsencode(place)):
        folders[:] = [name for name in folders if os.fsdecode(name) not in without]
        for name in folders + files:
            path = os.path.join(folder, name)
            found = os.lstat(path)
            shown = os.fsdecode(os.path.relpath(path, os.fsencode(place)))
            content: Any = None
            if os.path.islink(path):
                content = os.readlink(path)
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    content = (file.read(), found.st_mtime_ns, found.st_nlink)
            seen[shown] = (found.st_mode, found.st_uid, found.st_gid, content)
    return seen
