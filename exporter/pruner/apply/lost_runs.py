"""Runs that have trash but are not in the journal, because the journal was lost or replaced.

`hermes import` replaces it by the older copy in its archive. The trash tells enough to record such
a run again as a killed one. Then recovery finds out what it took, sessions that Hermes continued
are healed, and `undo` works. The keep time of its trash begins again, and the trash waits for every
process that has the database open now.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from exporter.evidence.liveness import read_boot_time
from exporter.hermes.prunable_names import is_prunable_project, is_prunable_repo, is_session_file
from exporter.pruner.apply.session_trash import read_sessions
from exporter.pruner.apply.store_projects import RECORD
from exporter.pruner.beside import ProcessesAtPrune
from exporter.pruner.decide.trash_wait import BESIDE
from exporter.pruner.expected import ExpectedFile, ExpectedFolder, as_keys
from exporter.pruner.models import Act
from exporter.runs.folder import run_folder
from exporter.runs.journal import journal_of, running_on
from exporter.runs.models import UNREADABLE, Action, RecordedAction
from exporter.runs.trash import KEEP_ANEW_SECONDS, RunTrash, is_name_cut, runs_in_trash, trash_of
from exporter.writing.target import Target

_ENTRY: Final = re.compile(r"([0-9]{6})-(.+)", re.DOTALL)
_REASON: Final = "its run is not in the journal any more"


def note_lost_runs(target: Target) -> None:
    """Record each run that has trash and is not in the journal; in a process of the home's owner.

    Raise RunBusyError if another run is under way, RunError if the journal cannot be used.
    """
    with run_folder(target.home, target.owner) as folder:
        trashed = runs_in_trash(folder) if folder is not None else []
    if not trashed:
        return
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is not None and not journal.unlisted(trashed):
            return
    with running_on(target, "recovery") as runs:
        for run in runs.unlisted(trashed):
            with trash_of(runs.folder, run) as trash:
                actions = [] if trash is None else _actions(trash, target)
            if any(each.action.kind != UNREADABLE for each in actions):
                runs.note_lost(run, actions, KEEP_ANEW_SECONDS)


def _actions(trash: RunTrash, target: Target) -> list[RecordedAction]:
    """Return what the run took, by number; entries that cannot be read are `UNREADABLE`."""
    sessions: dict[int, str] = {}
    for file in read_sessions(trash):
        for kept in file:
            sessions.setdefault(kept.number, kept.stored.id)
    found = {
        number: _action(number, Act.DELETE_SESSION, session_id, {})
        for number, session_id in sessions.items()
    }
    for number, each in sorted(found.items()):
        each.after["row"] = "kept"  # its row may be there, emptied
        if number == min(found):
            each.after[BESIDE] = msgspec.to_builtins(_processes(target))
    for each in _others(trash):
        found.setdefault(each.number, each)
    return [found[number] for number in sorted(found)]


def _others(trash: RunTrash) -> Iterator[RecordedAction]:
    """Yield what lies there besides sessions: its name tells its number, and what it was."""
    for name in sorted(os.listdir(trash.descriptor)):
        if match := _ENTRY.fullmatch(name):
            entry = os.stat(name, dir_fd=trash.descriptor, follow_symlinks=False)
            kind, target = _what_it_was(match[2], entry, os.path.join(trash.path, name))
            is_file = kind == Act.DELETE_FILE
            expected = (ExpectedFile if is_file else ExpectedFolder).of(entry)
            yield _action(int(match[1]), kind, target, as_keys(expected))


def _what_it_was(name: str, entry: os.stat_result, path: str) -> tuple[str, str]:
    """Return the action that took it, and its target; names must be such as Hermes gives."""
    file, repo = f"sessions/{name}", f"checkpoints/{name}"
    if not is_name_cut(os.path.basename(path)):
        if stat.S_ISREG(entry.st_mode) and is_session_file(os.fsencode(file)):
            return Act.DELETE_FILE, file
        if stat.S_ISDIR(entry.st_mode) and os.path.lexists(os.path.join(path, RECORD)):
            if is_prunable_project(os.fsencode(name)):
                return Act.DELETE_PROJECT, name
        elif stat.S_ISDIR(entry.st_mode) and is_prunable_repo(os.fsencode(repo)):
            return Act.DELETE_REPO, repo
    return UNREADABLE, path


def _action(number: int, kind: str, target: str, expected: dict[str, Any]) -> RecordedAction:
    return RecordedAction(Action(kind, target, _REASON, expected), after={}, number=number)


def _processes(target: Target) -> ProcessesAtPrune:
    moment = read_boot_time()
    chats = tuple(target.openers.started.items())
    return ProcessesAtPrune(moment.boot_id, moment.monotonic, chats)
