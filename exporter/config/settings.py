"""Every setting: its key, unit, default and help. The pruner's settings are in `prune`.

Durations are kept in seconds, sizes in bytes and percentages as ratios (`10%` is 0.1).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import ClassVar, Protocol

from exporter.config.mode import MODE, Mode
from exporter.config.prune import Prune
from exporter.config.table import (
    Leaf,
    list_of,
    nested,
    nested_with,
    optional,
    section_list,
    setting,
    settings,
)
from exporter.config.units import (
    ADDRESS,
    COUNT,
    DURATION,
    DURATION_OR_OFF,
    END_REASON,
    HOME_NAME,
    HOME_PATH,
    RATIO,
    SWITCH,
    choice,
)

REAPABLE_SOURCES = ("cli", "tui", "cron", "subagent", "curator", "webhook", "api_server")
"""Sources whose sessions can be proven dead. A chat is never one of them."""


@settings
class ScanSettings:
    interval_seconds: float = setting(DURATION, "15s", "time between two scans of a home")
    full_interval_seconds: float = setting(
        DURATION, "6h", "every file is checked again within this time, changed or not"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PresumeAfter:
    """How long a session must be idle, watched by the agent, to be presumed dead; None: never."""

    server_seconds: float | None
    chat_seconds: float | None
    off: bool = False

    def beside_servers(self) -> float | None:
        return None if self.off else self.server_seconds

    def beside_chats(self) -> float | None:
        return None if self.off else self.chat_seconds


@settings
class Reaper:
    mode: Mode = setting(MODE, "observe", "observe: only report; enforce: end dead sessions")
    interval_seconds: float = setting(DURATION, "60s", "time between two automatic reaps")
    min_idle_seconds: float = setting(
        DURATION, "10m", "a session that was active within this time counts as live"
    )
    confirmations: int = setting(
        COUNT, "2", "scans in a row that must agree before a session is dead"
    )
    heartbeat_timeout_seconds: float = setting(
        DURATION, "90s", "a heartbeat up to this age proves that its process lives"
    )
    sources: tuple[str, ...] = list_of(
        choice("source", REAPABLE_SOURCES),
        ("cli", "tui", "cron", "subagent", "curator"),
        "sources whose sessions may be reaped; webhook and api_server only if named here",
    )
    presume_after: PresumeAfter = nested_with(
        PresumeAfter,
        "idle time, watched by the agent, after which a session is presumed dead: server, while a "
        "gateway or a cron run has the database open; chat, while a chat or a program of unknown "
        "kind has it open",
        {
            "server_seconds": Leaf(
                DURATION_OR_OFF, "2h", "while a gateway or a cron run has the database open"
            ),
            "chat_seconds": Leaf(
                DURATION_OR_OFF,
                "72h",
                "while a chat, or a program of unknown kind, has the database open",
            ),
        },
        can_be_off=True,
    )
    end_reason: str = setting(
        END_REASON, "reaped", "end_reason of a reaped session; must not be one that Hermes writes"
    )
    max_per_minute: int = setting(
        COUNT,
        "60",
        "maximum number of sessions ended in one minute; automatic reaping of a home begins with "
        "10 in an hour and doubles after each hour in which nothing had to be reopened",
    )
    private_homes: bool = setting(
        SWITCH,
        "false",
        "true: in the private home of its own user (mode 0700, in folders that no other user can "
        "change), an agent that is not root judges by the processes that it sees. It assumes that "
        "Hermes runs there neither as root nor in a process that hides its open files and has lost "
        "its locks",
    )
    RETIRED: ClassVar = {
        "breaker": "slow start has replaced it: 10 sessions in the first hour, twice as many in "
        "each further one while nothing has to be reopened; remove it"
    }


@settings
class Marathon:
    max_messages: int = setting(
        COUNT,
        "200",
        "maximum number of messages; session_reset.max_messages of the home overrides it",
    )
    near_ratio: float = setting(
        RATIO, "0.85", "a session with at least this share of max_messages counts as near"
    )


@settings
class ScanLimits:
    descriptors_per_user: int = setting(
        COUNT,
        "20000",
        "maximum number of open files of one user's processes that a scan checks; if a user "
        "other than root has more, only homes that this user can write are blind",
    )
    seconds_per_home: float = setting(DURATION, "120s", "longest time to read one home in a scan")
    open_sessions_per_home: int = setting(
        COUNT,
        "150000",
        "maximum number of open sessions of one home that are read and judged; a home with more "
        "is counted and blind. Each takes about 1 kB of its worker's memory (LimitDATA= of the "
        "service)",
    )
    sessions_per_home: int = setting(
        COUNT,
        "300000",
        "maximum number of sessions of one home for which the agent plans a prune; each takes "
        "about 1 kB for a moment. `prune` by hand has no such limit",
    )


@settings
class Alerts:
    runbook_base: str = setting(
        ADDRESS, "", "beginning of the runbook links in alerts; empty: the pages of the agents"
    )
    dashboard_base: str = setting(ADDRESS, "", "beginning of the dashboard links in alerts")


@settings
class ConfiguredHome:
    """One home by its path, or all homes that were found and fit a pattern or a user."""

    path: str | None = optional(
        HOME_PATH,
        "the HERMES_HOME directory; `~` is expanded. With `*`, `?` or `[...]`, each of which stays "
        "within one name, it selects among the homes that are found",
    )
    user: str | None = optional(
        HOME_NAME, "instead of `path`: the homes of this user among those that are found"
    )
    name: str | None = optional(
        HOME_NAME, "its `home` label, for a single path; the default is made from its owner"
    )
    watch: bool = setting(SWITCH, "true", "false: leave these homes out")
    profiles: bool = setting(
        SWITCH, "true", "also watch its profiles, each as a home with the same settings"
    )
    reaper: Reaper = nested(Reaper, "keys of `reaper` that differ in this home")
    prune: Prune = nested(Prune, "keys of `prune` that differ in this home")

    def problem(self) -> str:
        if (self.path is None) == (self.user is None):
            return "give either 'path:' or 'user:'"
        if self.name is not None and self.single_path is None:
            return "'name:' is for one home: give its path without *, ? or ["
        return ""

    @property
    def single_path(self) -> str | None:
        """The path, if it is that of one home."""
        return None if self.path is None or any(each in self.path for each in "*?[") else self.path

    @property
    def selector(self) -> str:
        """The line of the file that selects: `user: alice`."""
        return f"path: {self.path}" if self.user is None else f"user: {self.user}"

    def fits(self, paths: Sequence[str]) -> bool:
        """True if one of the paths is this one, or fits this pattern name by name."""
        if self.path is None:
            return False
        pattern = self.path.split("/")
        return self.path in paths or any(
            len(names) == len(pattern) and all(map(fnmatchcase, names, pattern))
            for names in (path.split("/") for path in paths)
        )


class SelectableHome(Protocol):
    """What an entry of `homes` can select a home by."""

    @property
    def path(self) -> str: ...
    @property
    def named_as(self) -> str: ...
    @property
    def owner_name(self) -> str: ...


@dataclasses.dataclass(frozen=True, slots=True)
class HomeSettings:
    """The settings of one home: its own, where given, else the general ones."""

    reaper: Reaper
    prune: Prune


@settings
class Settings:
    homes: tuple[ConfiguredHome, ...] = section_list(
        ConfiguredHome,
        inherits=("reaper", "prune"),
        unique=("path", "user", "name"),
        about="homes that differ from the others: named, left out, or with settings of their own",
    )
    discover: bool = setting(
        SWITCH, "true", "watch every home on this host; false: only those that `homes` selects"
    )
    scan: ScanSettings = nested(ScanSettings, "how often homes are scanned")
    reaper: Reaper = nested(Reaper, "ends sessions whose process is gone")
    marathon: Marathon = nested(Marathon, "when a session is too long")
    prune: Prune = nested(Prune, "frees disk space")
    limits: ScanLimits = nested(ScanLimits, "limits of a scan for one user or one home")
    alerts: Alerts = nested(Alerts, "links in alerts")

    def for_home(self, home: SelectableHome) -> HomeSettings:
        """Return the settings of a home: those of the entry that selects it, or the general ones.

        A profile has the settings of its root home unless an entry selects it alone.
        """
        chosen = self.entry((home.named_as, home.path), home.owner_name)[0] or self
        return HomeSettings(chosen.reaper, chosen.prune)

    def only_watches(self, home: SelectableHome, *, may_write: bool) -> bool:
        """True if a home is only watched although its settings ask for more."""
        own = self.for_home(home)
        return not may_write and Mode.ENFORCE in (own.reaper.mode, own.prune.mode)

    def wants(self, paths: Sequence[str], owner_name: str) -> bool:
        """True if a home that has been found, known by these paths, is to be watched."""
        entry, of_its_root = self.entry(paths, owner_name)
        if entry is None:
            return self.discover
        return entry.watch and (entry.profiles or not of_its_root)

    def entry(self, paths: Sequence[str], owner_name: str) -> tuple[ConfiguredHome | None, bool]:
        """Return the entry that selects a home, and whether it does so through the root home.

        The most specific one counts: the home's own path, a pattern for it, then both for the root
        of a profile, then the user. Among equals it is the first in the file.
        """
        roots = [root for path in paths if (root := _root_of_profile(path))]
        for places in (paths, roots):
            fitting = [home for home in self.homes if home.fits(places)]
            # A stable sort: False, for a single path, comes before True.
            for home in sorted(fitting, key=lambda home: home.single_path is None):
                return home, places is roots
        for home in self.homes:
            if home.user is not None and home.user == owner_name:
                return home, bool(roots)
        return None, False


def _root_of_profile(path: str) -> str:
    """Return the home that this path is a profile of; empty if it is none."""
    above = os.path.dirname(path)
    return os.path.dirname(above) if os.path.basename(above) == "profiles" else ""
