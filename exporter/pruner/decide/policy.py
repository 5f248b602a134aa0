"""What a policy is: a name, a function that finds items, and the names that it may take."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from exporter.config.prune import ThresholdName
from exporter.hermes.prunable_names import is_denied
from exporter.pruner.decide.findings import Finding, FindingBuilder, Scope
from exporter.pruner.decide.inventory import HomeFile
from exporter.pruner.decide.items import ItemGroup, file_item

Find = Callable[[Scope, "Policy"], Finding]
"""Finds what a policy may take from a home, and changes nothing."""
Names = Callable[[bytes], object]
"""True for a path below the home that a policy may take, e.g. `re.compile(…).fullmatch`."""
Warn = Callable[[Iterable[ItemGroup]], Iterator[str]]
"""Yields warnings that a person should read before saying yes to these groups."""


@dataclass(frozen=True, slots=True)
class FilesIn:
    """The files below one folder of the home whose names match."""

    folder: bytes
    names: re.Pattern[bytes]
    """Matches the whole path below the folder."""

    def has(self, path: bytes) -> bool:
        """True if a path below the home is one of them, and not one that no policy may take."""
        name = path.removeprefix(self.folder + b"/")
        matches = name != path and self.names.fullmatch(name) is not None
        return matches and not is_denied(path)


def files_in(folder: str, names: re.Pattern[bytes]) -> FilesIn:
    """Return what to gather. Raise ValueError for a folder from which nothing may be taken."""
    found = FilesIn(os.fsencode(folder), names)
    if is_denied(found.folder + b"/x"):
        raise ValueError(
            f"no policy may take files in {folder!r}: `is_denied` of hermes/prunable_names.py "
            "refuses them; a folder is written as 'cron/output', without a slash at its ends"
        )
    return found


def _nothing_to_warn_of(chosen: Iterable[ItemGroup]) -> Iterator[str]:
    del chosen
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One policy; the file of its name has it as `POLICY`."""

    name: str
    find: Find
    lowers: tuple[ThresholdName, ...] = ()
    """The thresholds that ask it for items. Each item lowers some or all of them."""
    gather: FilesIn | None = None
    """Files to list for this policy; `find` gets them in `Scope.inventory.gathered`."""
    names: Names | None = None
    """Files and folders that it may take; the removers check it. Default: what it gathers."""
    in_the_way: tuple[str, ...] = ()
    """Its own values of `hermes_prune_blocked{reason}`: why it may refuse to find anything."""
    warn: Warn = _nothing_to_warn_of

    def may_take(self, path: bytes) -> bool:
        """True if this policy may take a path below the home."""
        if self.names is not None:
            return bool(self.names(path))
        return self.gather is not None and self.gather.has(path)


def find_files(reason: str, *, newest_stays: bool = False) -> Find:
    """Return a `find` for the files that a policy gathers: each goes when it is old enough.

    `reason` may say `{age}`. With `newest_stays` the newest file of each folder stays, however old
    it is: for files of which Hermes reads the newest again.
    """

    def find(scope: Scope, policy: Policy) -> Finding:
        found = FindingBuilder(scope, policy.name)
        files = scope.inventory.gathered.get(policy.name, ())
        newest = _newest_by_folder(files) if newest_stays else {}
        for file in files:
            found.consider(
                file_item(file, policy.lowers),
                clock=file.modified_at,
                reason=reason,
                kept_by=_kept_by(file, scope, newest),
            )
        return found.finding()

    return find


def _newest_by_folder(files: Iterable[HomeFile]) -> dict[str, float]:
    """Return when the newest file of each folder was modified."""
    newest: dict[str, float] = {}
    for file in files:
        folder = os.path.dirname(file.path)
        newest[folder] = max(file.modified_at, newest.get(folder, file.modified_at))
    return newest


def _kept_by(file: HomeFile, scope: Scope, newest: Mapping[str, float]) -> str:
    """Return the rule that keeps a file; empty if none does."""
    if not file.is_own:
        return "not_own"
    if file.path in scope.protection.restored:
        return "restored"
    return "newest_file" if newest.get(os.path.dirname(file.path)) == file.modified_at else ""
