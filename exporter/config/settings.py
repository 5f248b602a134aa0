"""Every setting: its key, unit, default and help. The pruner's settings are in `prune`.

Durations are kept in seconds, sizes in bytes and percentages as ratios (`10%` is 0.1).
"""

from __future__ import annotations

import dataclasses
import os
from typing import ClassVar

from exporter.config.mode import MODE, Mode
from exporter.config.prune import Prune
from exporter.config.table import (
    Leaf,
    list_of,
    nested,
    nested_with,
    optional,
    required,
    section_list,
    setting,
    settings,
)
from exporter.config.units import (
    ADDRESS,
    COUNT,
    DURATION,
    DURATION_OR_OFF,
    HOME_NAME,
    HOME_PATH,
    RATIO,
    SWITCH,
    WORD,
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
        DURATION, "10m", "a session that was active in this time counts as live"
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
        "a session is presumed dead if the agent saw it idle for this time while a process ran "
        "that may have it",
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
    end_reason: str = setting(WORD, "reaped", "end_reason written to a reaped session")
    max_per_minute: int = setting(
        COUNT,
        "60",
        "most sessions ended in one minute; automatic reaping of a home begins with 10 in an hour "
        "and doubles after each hour in which nothing had to be reopened",
    )
    RETIRED: ClassVar = {
        "breaker": "slow start has replaced it: 10 sessions in the first hour, twice as many in "
        "each further one while nothing has to be reopened; remove it"
    }


@settings
class Marathon:
    max_messages: int = setting(
        COUNT, "200", "most messages; session_reset.max_messages of the home wins if it is set"
    )
    near_ratio: float = setting(
        RATIO, "0.85", "a session counts as near from this share of max_messages on"
    )


@settings
class ScanLimits:
    descriptors_per_user: int = setting(
        COUNT,
        "20000",
        "most open files of one user's processes that a scan checks; if a user other than root has "
        "more, only homes that this user can write are blind",
    )
    seconds_per_home: float = setting(DURATION, "120s", "longest time to read one home in a scan")


@settings
class Alerts:
    runbook_base: str = setting(ADDRESS, "", "beginning of the runbook links in alerts")
    dashboard_base: str = setting(ADDRESS, "", "beginning of the dashboard links in alerts")


@settings
class ConfiguredHome:
    path: str = required(HOME_PATH, "the HERMES_HOME directory; `~` is expanded", empty="")
    name: str | None = optional(HOME_NAME, "its `home` label; the default is made from the path")
    profiles: bool = setting(
        SWITCH, "true", "also watch its profiles, each as a home with the same settings"
    )
    reaper: Reaper = nested(Reaper, "keys of `reaper` that differ in this home")
    prune: Prune = nested(Prune, "keys of `prune` that differ in this home")


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
        unique=("path", "name"),
        about="the homes to watch; by default every home on this host",
    )
    scan: ScanSettings = nested(ScanSettings, "how often homes are scanned")
    reaper: Reaper = nested(Reaper, "ends sessions whose process is gone")
    marathon: Marathon = nested(Marathon, "when a session is too long")
    prune: Prune = nested(Prune, "frees disk space")
    limits: ScanLimits = nested(ScanLimits, "limits of a scan for one user or one home")
    alerts: Alerts = nested(Alerts, "links in alerts")

    def for_home(self, name_or_path: str) -> HomeSettings:
        """Return the settings of a home by its configured name or path.

        A profile has the settings of its root home.
        """
        chosen = self._home(name_or_path) or self
        return HomeSettings(chosen.reaper, chosen.prune)

    def _home(self, name_or_path: str) -> ConfiguredHome | None:
        for home in self.homes:
            if name_or_path in (home.name, home.path):
                return home
        for home in self.homes:
            roots = [os.path.join(home.path, "profiles"), *([home.name] if home.name else [])]
            if name_or_path.startswith(tuple(root + "/" for root in roots)):
                return home
        return None
