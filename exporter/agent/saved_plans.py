"""Plans that were printed, saved for as long as they may be executed.

A saved plan holds only its targets, the state of each target, and the options that found them. To
execute it, a new plan is made with the same options. Only targets that the saved plan names are
then taken.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct, field

from exporter.errors import ExporterError
from exporter.runs.models import Filter

_FOLDER: Final = "plans"
_HASH: Final = re.compile("[0-9a-f]{16}")


class SavedItem(Struct, frozen=True):
    """A target and its state when it was planned."""

    home: str
    """The path of the home."""
    target: str
    digest: str


class SavedPlan(Struct, frozen=True):
    kind: str
    """`reap` or `prune`."""
    hash: str
    created_at: float
    expires_at: float
    items: tuple[SavedItem, ...]
    filter_by: Filter = field(default=Filter(), name="narrowed")
    """What a prune was limited to; older versions stored it as `narrowed`."""
    by_pressure: bool = False


def save(state_dir: str, plan: SavedPlan, clock: Callable[[], float] = time.time) -> None:
    """Save a plan and remove expired ones. Raise OSError if it cannot be saved."""
    folder = os.path.join(state_dir, _FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    _remove_expired(folder, clock())
    path = os.path.join(folder, f"{plan.hash}.json")
    unfinished = f"{path}.new"
    try:
        with open(unfinished, "wb", opener=_open_private) as file:
            file.write(msgspec.json.encode(plan))
        os.replace(unfinished, path)
    except OSError:
        with suppress(OSError):
            os.unlink(unfinished)  # on a full disk even an empty file is in the way
        raise


def load(
    state_dir: str, kind: str, plan_hash: str, clock: Callable[[], float] = time.time
) -> SavedPlan:
    """Return the plan with that hash; raise ExporterError if there is none or it has expired."""
    if not _HASH.fullmatch(plan_hash):
        raise ExporterError(f"'{plan_hash[:32]}' is no plan; `{kind}` prints the hash of its plan")
    path = os.path.join(state_dir, _FOLDER, f"{plan_hash}.json")
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=SavedPlan)
    except FileNotFoundError:
        raise ExporterError(
            f"no plan {plan_hash} is kept in {state_dir}; run `{kind}` to make one"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise ExporterError(
            f"cannot read {path}: {error}; run `{kind}` to make a new plan"
        ) from error
    if found.kind != kind or found.hash != plan_hash:
        raise ExporterError(f"plan {plan_hash} is one of `{found.kind}`, not of `{kind}`")
    if clock() > found.expires_at:
        raise ExporterError(f"plan {plan_hash} has expired; run `{kind}` to make a new one")
    return found


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _remove_expired(folder: str, now: float) -> None:
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                if msgspec.json.decode(file.read(), type=SavedPlan).expires_at > now:
                    continue
            os.unlink(path)
        except (OSError, msgspec.DecodeError):
            continue  # cannot be read: skip it
