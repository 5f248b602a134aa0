"""Takes checkpoints, or lists them, through the release's own CheckpointManager."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools.checkpoint_manager import (  # type: ignore[import-not-found]
    CheckpointManager,
    prune_checkpoints,
    store_status,
)


def main() -> None:
    """`snapshot` is a list of [folder, turns]; the answer is the number of snapshots by folder."""
    request = json.load(sys.stdin)
    manager = CheckpointManager(enabled=True, **request.get("limits", {}))
    answer = {}
    for folder, turns in request.get("snapshot", []):
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for turn in range(turns):
            before = len(manager.list_checkpoints(folder))
            (place / f"file-{before}-{turn}.bin").write_bytes(
                _noise(f"{folder} {before} {turn}", request.get("file_bytes", 2000))
            )
            manager.new_turn()
            if not manager.ensure_checkpoint(folder, f"turn {turn}"):
                raise SystemExit(f"no checkpoint was taken of {folder}")
    if "prune" in request:
        answer["prune"] = prune_checkpoints(**request["prune"])
    answer["snapshots"] = {
        folder: [each["hash"] for each in manager.list_checkpoints(folder)]
        for folder in request.get("list", [])
    }
    answer["projects"] = sorted(each["workdir"] for each in store_status()["projects"])
    for folder, commit in request.get("restore", []):
        answer.setdefault("restored", []).append(manager.restore(folder, commit))
    json.dump(answer, sys.stdout)


def _noise(seed: str, size: int) -> bytes:
    """Bytes that do not compress, the same for the same seed."""
    import random

    return random.Random(seed).randbytes(size)


if __name__ == "__main__":
    main()
