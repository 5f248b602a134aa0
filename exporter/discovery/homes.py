"""The homes on this host, their owners and their labels.

A hostile user of a shared machine could mislead an agent that runs as root. A symlink, a directory
that the user can replace, or a database of another user could make the agent read, write or run
things outside that user's home. So a home that was only found is adopted by strict rules. A home
that the operator named needs fewer.
"""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Final

from msgspec import Struct, structs

from exporter.discovery.inspection import Inspection
from exporter.snapshot import FileIdentity
from exporter.text import escape_control, shortened

HOMES_PER_OWNER_MAX: Final = 64
_PROFILE_CHARACTERS: Final = 64
REFUSALS_PER_USER_MAX: Final = 16
LABELS_PER_OWNER_MAX: Final = 256
"""The most labels that one user's homes may ever have had.

A profile that is renamed again and again makes new labels, and each label makes new series.
"""


IsWanted = Callable[[Sequence[str], str], bool]
"""Is the home at these paths (as named, without symlinks), of this user, to be watched?"""


class Origin(StrEnum):
    """How the agent learnt of a home."""

    NAMED = "named"
    OWN = "own"
    USER = "user"
    PROCESS = "process"
    PROFILE = "profile"


class HomeCandidate(Struct, frozen=True):
    """A directory to inspect."""

    path: str
    origin: Origin
    label: str = ""
    """The label it gets if no other home has it. Empty: a label made from its owner."""
    profiles: bool = True
    uid: int | None = None
    """The owner it must have, for a home learnt from a process."""
    database: FileIdentity | None = None
    """The state.db it must have, for a home learnt from a process."""
    named_by_uid: int | None = None
    """The user that says there is a home; None: the operator."""


class Home(Struct, frozen=True):
    """A home that the agent watches."""

    path: str
    label: str
    owner: int
    may_write: bool
    """False for a root-owned home that the configuration neither names nor selects: it is only
    read."""
    named_as: str = ""
    """The path in the configuration. It differs from `path` if there are symlinks above it."""
    owner_name: str = ""
    """The owner's name on this host; empty if it has none."""
    named: bool = False
    """True for a home that the operator named by its path, and for its profiles."""
    profile_names: tuple[str, ...] = ()
    problem: str = ""
    """Why it cannot be watched, although it was named or was watched before."""
    unreadable: bool = False
    """True if the problem is that it may not be read."""


class RefusedHome(Struct, frozen=True):
    """A candidate that was not adopted, and why; shown by `check` and in the log."""

    path: str
    why: str
    fix: str
    own: bool = False
    """True if the operator named it, or it belongs to the user of this process."""


class Census(Struct, frozen=True):
    """The result of one discovery."""

    homes: tuple[Home, ...]
    refused: tuple[RefusedHome, ...]
    unused: tuple[str, ...] = ()
    """Entries of the configuration that select no home here: mistyped, or meant for other hosts."""


class Account(Struct, frozen=True):
    """A user of this host."""

    name: str
    uid: int
    directory: str


def accounts() -> list[Account]:
    """Return all users that this host knows."""
    return [Account(entry.pw_name, entry.pw_uid, entry.pw_dir) for entry in pwd.getpwall()]


def found_candidates(
    users: Sequence[Account], own_uid: int, environment: Mapping[str, str]
) -> list[HomeCandidate]:
    """Return the places of homes when none was named: this user's, and every other user's."""
    candidates: list[HomeCandidate] = []
    if environment.get("HERMES_HOME"):
        path = os.path.abspath(os.path.expanduser(environment["HERMES_HOME"]))
        candidates.append(HomeCandidate(path, Origin.OWN))
    own = environment.get("HOME") or next((u.directory for u in users if u.uid == own_uid), "")
    if own:
        candidates.append(HomeCandidate(os.path.join(own, ".hermes"), Origin.OWN))
    candidates.extend(
        HomeCandidate(os.path.join(user.directory, ".hermes"), Origin.USER, named_by_uid=user.uid)
        for user in sorted(users, key=lambda user: user.uid)
        if os.path.isabs(user.directory) and user.directory != "/"
    )
    return candidates


def profile_candidates(root: Home, names: Iterable[str], origin: Origin) -> list[HomeCandidate]:
    """Return the profiles of an adopted root home; each is a home of its own."""
    return [
        HomeCandidate(
            os.path.join(root.named_as, "profiles", name),
            origin if origin is Origin.NAMED else Origin.PROFILE,
            f"{root.label}/{name}",
            profiles=False,
            uid=root.owner,
            named_by_uid=None if origin is Origin.NAMED else root.owner,
        )
        for name in names
    ]


def why_refused(candidate: HomeCandidate, seen: Inspection) -> str:
    """Return why this candidate may not be adopted; empty if it may."""
    if not seen.exists:
        return "it does not exist"
    if seen.unreadable:
        return f"it cannot be read ({seen.unreadable.rpartition(': ')[2]})"
    if not seen.is_directory:
        if seen.link_target:
            return f"it is a symlink, which is not followed; it leads to {seen.link_target}"
        return "it is not a directory"
    if seen.foreign_part:
        return seen.foreign_part
    if candidate.uid is not None and seen.owner != candidate.uid:
        return f"it belongs to uid {seen.owner}, not to uid {candidate.uid}"
    if candidate.origin is Origin.NAMED:
        return ""
    if candidate.database is not None and seen.database != candidate.database:
        return "its state.db is not the one that the process has open"
    if seen.unsafe_ancestor:
        return seen.unsafe_ancestor
    if not seen.looks_like_home:
        return "nothing in it looks like Hermes"
    return ""


class CensusTaker:
    """Builds a census, candidate by candidate, with a unique label for each home."""

    def __init__(
        self,
        labels: Mapping[str, str],
        watched: Mapping[str, Home],
        own_uid: int,
        user_names: Mapping[int, str],
        labels_by_owner: Mapping[int, int],
        is_wanted: IsWanted,
    ) -> None:
        self._is_wanted = is_wanted
        self._remembered = labels
        self._labels_by_owner = dict(labels_by_owner)
        self._watched = watched
        self._own_uid = own_uid
        self._user_names = user_names
        self._taken: dict[str, str] = {label: path for path, label in labels.items()}
        self._homes: dict[str, Home] = {}
        self._identities: set[FileIdentity] = set()
        self._refused: dict[str, RefusedHome] = {}
        self._refused_of: dict[int | None, int] = {}
        self._reasons: dict[str, tuple[str, bool]] = {}
        self._per_owner: dict[int, int] = {}
        self._named: set[str] = set()

    def consider(self, candidate: HomeCandidate, seen: Inspection) -> Home | None:
        """Adopt or refuse a candidate; return the home if it was adopted just now."""
        path = seen.resolved or candidate.path
        if path in self._homes or (seen.identity is not None and seen.identity in self._identities):
            return None
        if not self._wants(candidate.path, path, seen.owner):
            return None
        if candidate.origin is Origin.NAMED:
            self._named.add(path)
        why = why_refused(candidate, seen) or self._too_many(path, candidate, seen.owner)
        if why:
            self._refuse(candidate, path, why, seen)
            return None
        home = Home(
            path=path,
            label=self._label(path, candidate, seen.owner),
            owner=seen.owner,
            may_write=seen.owner != 0 or self._own_uid != 0 or candidate.origin is Origin.NAMED,
            named_as=candidate.path,
            owner_name=self._user_names.get(seen.owner, ""),
            named=candidate.origin is Origin.NAMED,
            profile_names=self._wanted_profiles(candidate, path, seen),
        )
        self._per_owner[seen.owner] = self._per_owner.get(seen.owner, 0) + 1
        self._homes[path] = home
        self._refused.pop(path, None)
        if seen.identity is not None:
            self._identities.add(seen.identity)
        return home

    def _wants(self, named_as: str, path: str, owner: int) -> bool:
        return self._is_wanted((named_as, path), self._user_names.get(owner, ""))

    def _wanted_profiles(
        self, candidate: HomeCandidate, path: str, seen: Inspection
    ) -> tuple[str, ...]:
        """Return the profiles that are homes of their own; others are files of this home."""
        if not candidate.profiles:
            return ()
        return tuple(
            name
            for name in seen.profiles
            if self._wants(
                os.path.join(candidate.path, "profiles", name),
                os.path.join(path, "profiles", name),
                seen.owner,
            )
        )

    def _too_many(self, path: str, candidate: HomeCandidate, owner: int) -> str:
        """Return why no more homes of this owner are adopted; empty if they are."""
        if self._per_owner.get(owner, 0) >= HOMES_PER_OWNER_MAX:
            return f"uid {owner} has more than {HOMES_PER_OWNER_MAX} homes"
        if path in self._remembered or candidate.origin is Origin.NAMED:
            return ""
        if self._labels_by_owner.get(owner, 0) >= LABELS_PER_OWNER_MAX:
            return f"homes of uid {owner} have had more than {LABELS_PER_OWNER_MAX} names of late"
        self._labels_by_owner[owner] = self._labels_by_owner.get(owner, 0) + 1
        return ""

    def _refuse(self, candidate: HomeCandidate, path: str, why: str, seen: Inspection) -> None:
        """Show a named home as down; note any other home as refused.

        A watched home is shown as down only if no other candidate finds it (`result`). Otherwise
        another user's symlink or process could take it away.
        """
        if path in self._watched:
            if seen.owner in (self._watched[path].owner, -1):
                self._reasons[path] = (why, bool(seen.unreadable))
        elif candidate.origin is Origin.NAMED:
            label = self._label(path, candidate, seen.owner)
            self._homes[path] = Home(
                path,
                label,
                seen.owner,
                False,
                named=True,
                problem=why,
                unreadable=bool(seen.unreadable),
            )
        hidden = candidate.origin is Origin.USER and seen.identity is None and seen.unreadable
        if candidate.origin is Origin.NAMED or (seen.exists and not hidden):
            mine = candidate.origin in (Origin.NAMED, Origin.OWN) or seen.owner == self._own_uid
            own = mine and (seen.looks_like_home or bool(seen.unreadable))
            fix = _fix(candidate, path, why)
            if seen.unreadable and seen.owner == self._own_uid:
                fix = f"chmod u+rwx {shlex.quote(path)}"
            elif seen.unreadable:
                fix = "run as root, or as its owner"
            self._note_refusal(candidate.named_by_uid, RefusedHome(path, why, fix, own))

    def _note_refusal(self, named_by_uid: int | None, refusal: RefusedHome) -> None:
        """Note a limited number of refusals per user; a user could name any number of paths."""
        told = self._refused_of.get(named_by_uid, 0)
        if named_by_uid is None or told < REFUSALS_PER_USER_MAX or refusal.path in self._refused:
            self._refused_of[named_by_uid] = told + (refusal.path not in self._refused)
            self._refused[refusal.path] = refusal

    def _label(self, path: str, candidate: HomeCandidate, owner: int) -> str:
        remembered = self._remembered.get(path)
        if remembered is not None and not (candidate.label and candidate.origin is Origin.NAMED):
            return remembered
        if candidate.label and candidate.origin is Origin.NAMED:
            # the operator decides; the state store renames another home that has this label
            self._taken[candidate.label] = path
            return candidate.label
        label = candidate.label or self._owner_label(path, owner)
        if self._taken.get(label, path) != path:
            if remembered is not None:
                return remembered
            label = self._with_suffix(label, path)
        self._taken[label] = path
        return label

    def _with_suffix(self, label: str, path: str) -> str:
        """Return the label with as many digits of the path's hash as it needs to be unique."""
        digest = sha256(os.fsencode(path)).hexdigest()
        lengths = range(4, len(digest))
        suffixed = (f"{label}-{digest[:length]}" for length in lengths)
        return next(each for each in suffixed if self._taken.get(each, path) == path)

    def _owner_label(self, path: str, owner: int) -> str:
        label = "default"
        if owner not in (self._own_uid, -1):
            label = escape_control(self._user_names.get(owner, f"uid{owner}"))
        above, name = os.path.split(path)
        # A user chooses this name. It must not reach a label, a log or a terminal unescaped.
        shown = shortened(escape_control(name), _PROFILE_CHARACTERS)
        return f"{label}/{shown}" if os.path.basename(above) == "profiles" else label

    def result(self) -> Census:
        for path in reversed(list(self._watched)):
            home = self._watched[path]
            shown = self._per_owner.get(home.owner, 0)
            if path in self._homes or (shown >= HOMES_PER_OWNER_MAX and path not in self._named):
                continue  # if very many homes came and went, show only the last ones as gone
            self._per_owner[home.owner] = shown + 1
            self._homes[path] = _with_problem(home, *self._reasons.get(path, ("it is gone", False)))
        return Census(tuple(self._homes.values()), tuple(self._refused.values()))


def _with_problem(home: Home, why: str, unreadable: bool) -> Home:
    return structs.replace(
        home, may_write=False, profile_names=(), problem=why, unreadable=unreadable
    )


def _fix(candidate: HomeCandidate, path: str, why: str) -> str:
    if why.startswith("it is a symlink"):
        return "put the real folder there, or name the place that it leads to: --home PATH"
    if " is a symlink" in why:
        return "put the real file or folder there, or watch the home that it leads to"
    if candidate.origin is Origin.NAMED:
        return "correct the path, or the owner of its files"
    return f"if it is trusted, name it: --home {path}"


def take_census(
    candidates: Iterable[HomeCandidate],
    inspect: Callable[[HomeCandidate], Inspection],
    *,
    labels: Mapping[str, str],
    watched: Mapping[str, Home],
    own_uid: int,
    user_names: Mapping[int, str],
    labels_by_owner: Mapping[int, int] | None = None,
    is_wanted: IsWanted = lambda _paths, _owner_name: True,
) -> Census:
    """Inspect the candidates and their profiles in order; the first to claim a label gets it.

    `labels` are the earlier labels, by path. `watched` are the homes to show as down if they are
    not found. `labels_by_owner` is the number of labels that each owner's homes have. `is_wanted`
    is False for what the operator leaves out.
    """
    census = CensusTaker(labels, watched, own_uid, user_names, labels_by_owner or {}, is_wanted)
    todo = list(candidates)
    while todo:
        candidate = todo.pop(0)
        seen = inspect(candidate)
        home = census.consider(candidate, seen)
        if home is not None and candidate.profiles:
            todo[:0] = profile_candidates(home, seen.profiles, candidate.origin)
    return census.result()
