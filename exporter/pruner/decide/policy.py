"""What a policy is: a name, a function that finds what may go, and what it may touch at all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from exporter.hermes.prunable_names import is_denied
from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.items import ItemGroup, file_item
from exporter.pruner.models import ThresholdName

Find = Callable[[Scope, "Policy"], Finding]
"""Finds what a policy may take from a home, and takes nothing."""
Names = Callable[[bytes], object]
"""Whether a path below the home is one that a policy may take; `re.compile(…).fullmatch` is one."""
Warn = Callable[[Iterable[ItemGroup]], Iterator[str]]
"""What a person should know before saying yes to these."""


@dataclass(frozen=True, slots=True)
class FilesIn:
    """The files below a folder of the home whose names match, for a policy of their own."""

    folder: bytes
    names: re.Pattern[bytes]
    """Of the path below the folder, as a whole."""

    def has(self, path: bytes) -> bool:
        """Whether this is one of them, by its path below the home."""
        name = path.removeprefix(self.folder + b"/")
        return name != path and self.names.fullmatch(name) is not None


def files_in(folder: str, names: re.Pattern[bytes]) -> FilesIn:
    """Raise ValueError for a folder of which no policy may take anything."""
    found = FilesIn(os.fsencode(folder), names)
    if is_denied(found.folder + b"/x"):
        raise ValueError(f"no policy may take files in {folder}")
    return found


def _nothing_to_warn_of(chosen: Iterable[ItemGroup]) -> Iterator[str]:
    del chosen
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One policy: `POLICY` in the file of its name."""

    name: str
    find: Find
    lowers: tuple[ThresholdName, ...] = ()
    """The thresholds that ask it for items; an item lowers all of these or some."""
    gather: FilesIn | None = None
    """Files that are listed for it alone; `Scope.inventory.gathered` has them by its name."""
    names: Names | None = None
    """What it may take by a rename; the removers ask. Without it, what it gathers."""
    in_the_way: tuple[str, ...] = ()
    """Why it may find nothing at all, as `hermes_prune_blocked` tells it."""
    warn: Warn = _nothing_to_warn_of

    def may_take(self, path: bytes) -> bool:
        """Whether a path below the home is one that this policy may take."""
        if self.names is not None:
            return bool(self.names(path))
        return self.gather is not None and self.gather.has(path)


def find_files(reason: str) -> Find:
    """A `find` for the files that a policy gathers: each goes at the age that the settings say.

    `reason` may say `{age}`.
    """

    def find(scope: Scope, policy: Policy) -> Finding:
        found = FindingBuilder(scope, policy.name)
        for file in scope.inventory.gathered.get(policy.name, ()):
            kept_by = "restored" if file.path in scope.protection.restored else ""
            found.consider(
                file_item(file, policy.lowers),
                clock=file.modified_at,
                reason=reason,
                kept_by=kept_by if file.is_own else "not_own",
            )
        return found.finding()

    return find
