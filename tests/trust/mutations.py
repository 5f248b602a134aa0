"""Mistakes planted in the product: the short form of the campaign must find each of them.

`python -m tests.trust.mutations [NAME...]` copies the tree, plants one mistake at a time, and runs
the short form until it fails. It prints what the campaign said; a mistake that is not found, or
that cannot be planted any more, fails the command.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.real.hermes import REPOSITORY
from tests.trust.test_campaign import SEED, STEPS


class Edit(NamedTuple):
    file: str
    old: str
    new: str


NO_OPENERS_CHECK = (
    Edit("reaper/reap.py", "        refuse_new_openers(transaction)\n", ""),
    Edit("reaper/reap.py", "new = writer.new_openers() if taken else ()", "new = ()"),
)
MUTATIONS: dict[str, tuple[Edit, ...]] = {
    "skip the check of openers under the write lock": NO_OPENERS_CHECK,
    "ignore routing": (
        Edit(
            "workers/home.py",
            "        if self._scanner.state.routing is not None:\n            holds",
            "        if not True:\n            holds",
        ),
        Edit(
            "reaper/reap.py",
            "[*session.holds, *self._routing.holds.get(session_id, ())]",
            "[]",
        ),
    ),
    "presume at once": (
        Edit(
            "reaper/verdict.py",
            "if needed is None or idle_seconds(subject, context) < needed:",
            "if needed is None:",
        ),
    ),
    "count a resume as idle": (
        Edit(
            "reaper/watched_idleness.py",
            "if known.fingerprint != mark or session_id in moved:",
            "if known.fingerprint == _NO_FINGERPRINT:",
        ),
    ),
    "count time asleep as idle": (
        Edit(
            "evidence/liveness.py",
            'return BootTime(read_boot_id() or "", time.monotonic(), ',
            'return BootTime(read_boot_id() or "", time.clock_gettime(_BOOT_CLOCK), ',
        ),
    ),
    "take a chat for a command that runs no agent": (
        Edit(
            "reaper/possible_hosts.py",
            "    ProcessKind.CLI: HostClass.CHAT,\n",
            "    ProcessKind.CLI: HostClass.CLEARED,\n",
        ),
    ),
    "clear a one-shot of its own session": (
        Edit(
            "reaper/possible_hosts.py",
            "presence.seen_at >= self.one_shot_began_at",
            "presence.seen_at < self.one_shot_began_at",
        ),
    ),
    "presume beside a stopped process": (
        Edit("reaper/verdict.py", "    if context.hosts.stopped:\n", "    if not True:\n"),
        Edit("reaper/watched_idleness.py", "(stopped or self._stopped)", "not True"),
    ),
    "end a session that was active a moment ago": (
        Edit(
            "reaper/verdict.py",
            "    if any(_signs_of_life(subject, context)):\n",
            "    if not True:\n",
        ),
    ),
    "end nothing": (
        Edit(
            "agent/auto_reap.py",
            "        if not self.is_due(state, settings):\n",
            "        if True:\n",
        ),
    ),
    "leave wrong reaps as they are": (
        Edit(
            "reaper/reopen.py",
            "        if is_settled and not find(journal):\n",
            "        if is_settled:\n",
        ),
    ),
    "leave reaps that no journal lists as they are": (
        Edit(
            "workers/used_again.py",
            "            self.suspects |= {each for each in moved if state.table.has_ended_for",
            "            _ = {each for each in moved if state.table.has_ended_for",
        ),
    ),
    "let counters fall with the journal": (
        Edit(
            "agent/home_state.py",
            "        return counters.shown(read)\n",
            "        return read\n",
        ),
    ),
    "forget runs that only the trash knows": (
        Edit("workers/acting.py", "    note_lost_runs(target)\n", ""),
    ),
    "leave reborn sessions without their past": (
        Edit(
            "pruner/apply/reborn.py",
            "        if journal is None or not _has_work(target, journal):\n",
            "        if True:\n",
        ),
    ),
    "forget recovery": (
        Edit(
            "runs/recovery.py",
            "    for run in journal.unfinished_runs():\n        target",
            "    for run in ():\n        target",
        ),
    ),
    "lose the trash before the commit": (
        Edit(
            "pruner/apply/delete_sessions.py",
            "self.kept_bytes += write_sessions(self._trash, sessions)",
            "self.kept_bytes += write_sessions(self._trash, sessions[:-1])",
        ),
    ),
    "purge the trash of a session that a process has in memory": (
        Edit(
            "pruner/decide/trash_wait.py",
            "    if not deleted:\n        return",
            "    if True:\n        return",
        ),
    ),
    "purge trash at once": (
        Edit("pruner/apply/execute.py", "undoable_seconds=keep_seconds", "undoable_seconds=1.0"),
    ),
    "prune what is held": (
        Edit(
            "pruner/decide/protection.py",
            "    holds = guards.holds.get(session.id, ())\n",
            "    holds = ()\n",
        ),
        Edit(
            "pruner/apply/recheck.py",
            "if not why and session_id in routing.holds:",
            "if not True:",
        ),
    ),
    "prune what an undo gave back": (
        Edit(
            "pruner/decide/protection.py",
            "elif not include_undone and session.id in guards.restored:",
            "elif not True:",
        ),
        Edit(
            "pruner/decide/protection.py",
            "    restored = frozenset() if include_undone else guards.restored\n",
            "    restored: frozenset[str] = frozenset()\n",
        ),
    ),
    "end what an undo opened again": (
        Edit(
            "workers/home.py",
            "            holds[session_id] = [*holds.get(session_id, ()), Hold.RESTORED]\n",
            "            pass\n",
        ),
    ),
}


def plant(folder: Path, edits: tuple[Edit, ...]) -> None:
    for edit in edits:
        file = folder / "exporter" / edit.file
        text = file.read_text()
        if text.count(edit.old) != 1:
            raise SystemExit(f"{edit.file} does not have this once any more: {edit.old!r}")
        file.write_text(text.replace(edit.old, edit.new))


def found(name: str, seed: int, steps: int) -> str:
    """What the campaign said about a planted mistake; empty if it did not find it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for part in ("exporter", "tests"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(REPOSITORY / part, folder / part, ignore=ignored)
        (folder / ".cache").symlink_to(REPOSITORY / ".cache")
        plant(folder, MUTATIONS[name])
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.trust.fast", "--as-it-is"),
                *("--seed", str(seed), "--steps", str(steps)),
            ],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
        )
    said = [line for line in done.stdout.splitlines() if " failed at step " in line]
    return said[0] if said else "" if done.returncode == 0 else done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part of a mistake's name")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    missed = 0
    for name in MUTATIONS:
        if not given.names or any(each in name for each in given.names):
            said = found(name, given.seed, given.steps)
            missed += not said
            print(f"{name}: {said[:300] or 'NOT FOUND'}", flush=True)
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
