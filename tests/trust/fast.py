"""Run the campaign on the fast stage: `python -m tests.trust.fast --seed 1 --steps 2000`.

A failure prints its seed, is made shorter, and is written to a script that `--script FILE` runs
again. Each episode has new homes, and runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REAL_SECONDS = time.perf_counter

from tests.trust import made_up  # noqa: E402 - it replaces the clocks
from tests.trust.machine import Machine, Step, draw_episode, lines, parse, shrink  # noqa: E402

EPISODE_STEPS = 250
SHORTER_SECONDS = 60.0
VERSIONS = ("0.19.0", "0.16.0", "0.13.0")


def templates(folder: Path) -> dict[str, Path]:
    """An empty state.db of each release, made by its own code."""
    import subprocess

    from tests.real.hermes import python_for

    made = {}
    for version in VERSIONS:
        hermes, home = python_for(version), folder / version
        home.mkdir()
        code = "from hermes_state import SessionDB\nSessionDB().close()"
        subprocess.run(
            [str(hermes.python), "-c", code],
            env=hermes.environment(home),
            check=True,
            capture_output=True,
        )
        made[version] = home / "state.db"
    return made


def episode(script: Sequence[Step], made: dict[str, Path]) -> dict[str, Any]:
    """Take the steps in a process of its own; return what failed, where, and the counts."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "wb") as channel:
            pickle.dump(_take(script, made), channel)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as channel:
        content = channel.read()
    os.waitpid(child, 0)
    if not content:
        return {"failed": "the episode's process died", "trace": "", "at": -1, "counts": Counter()}
    found: dict[str, Any] = pickle.loads(content)
    return found


def _take(script: Sequence[Step], made: dict[str, Path]) -> dict[str, Any]:
    made_up.begin()
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    number, failed, trace = -1, None, ""
    machine = None
    try:
        stage = made_up.MadeUpStage(folder, made)
        machine = Machine(stage, made_up.HOST, made_up.Fault)
        for step in script:
            number += 1
            machine.take(step)
        number += 1
    except Exception as error:  # noqa: BLE001 - any failure is a finding
        failed, trace = f"{type(error).__name__}: {error}"[:2000], traceback.format_exc()
        if machine is not None and (named := re.search(r"20\d{6}_\d{6}_\w+", failed)):
            for home in machine.homes:
                if named[0] in home.sessions:
                    trace += stage.explain(home, named[0])
    finally:
        stage.close()
        if not os.environ.get("KEEP_HOMES"):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(folder, file=sys.stderr)
    counts = Counter(machine.counts) if machine else Counter()
    if machine is not None:
        counts.update({f"reaped {k}": v for k, v in machine.model.reaped.items()})
        counts.update(pruned=machine.model.pruned, healed=machine.model.healed)
    return {"failed": failed, "trace": trace, "at": number, "counts": counts}


def run(seed: int, steps: int, made: dict[str, Path], *, shorter: bool = True) -> Counter[str]:
    """Run so many steps in episodes; raise SystemExit with a script on the first failure."""
    counts: Counter[str] = Counter()
    began = REAL_SECONDS()
    for number in range(-(-steps // EPISODE_STEPS)):
        script = draw_episode(seed + number, min(EPISODE_STEPS, steps - number * EPISODE_STEPS))
        found = episode(script, made)
        counts.update(found["counts"])
        counts["steps"] += found["at"]
        if found["failed"] is not None:
            _report(seed + number, script[: found["at"] + 1], found, made, shorter=shorter)
    counts["seconds"] = int(REAL_SECONDS() - began)
    return counts


def _report(
    seed: int, script: list[Step], found: dict[str, Any], made: dict[str, Path], *, shorter: bool
) -> None:
    print(f"seed {seed} failed at step {found['at']}: {found['failed']}", flush=True)
    kind = _kind(found["failed"])

    until = REAL_SECONDS() + SHORTER_SECONDS

    def fails(steps: Sequence[Step]) -> bool:
        if REAL_SECONDS() > until:
            return False
        again = episode(steps, made)["failed"]
        return again is not None and _kind(again) == kind

    if shorter:
        script = shrink(script, fails)
        found = episode(script, made)
    file = Path(f"trust-{seed}.script")
    file.write_text("\n".join([f"# seed {seed}: {found['failed']}", *lines(script)]) + "\n")
    print(found["trace"])
    print(f"{len(script)} steps; run them again: python -m tests.trust.fast --script {file}")
    raise SystemExit(1)


def _kind(failed: str) -> str:
    """What two failures of the same kind have in common: the words without names and numbers."""
    return " ".join(re.findall(r"(?<!\S)[A-Za-z,;]+(?!\S)", failed)[:8])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--script", type=Path)
    parser.add_argument("--as-it-is", action="store_true", help="do not make a failure shorter")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = templates(Path(folder))
        if given.script:
            found = episode(parse(given.script.read_text()), made)
            print(found["trace"] or "it holds")
            raise SystemExit(1 if found["failed"] else 0)
        print(f"seed {given.seed}, {given.steps} steps", flush=True)
        counts = run(given.seed, given.steps, made, shorter=not given.as_it_is)
    print(json.dumps(dict(sorted(counts.items()))))


if __name__ == "__main__":
    main()
