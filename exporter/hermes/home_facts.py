"""Facts that Hermes notes in small files of a home."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from exporter.errors import HomeError
from exporter.hermes.small_files import read_json, read_number, read_small

_VERSION: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}([a-z0-9.+-]{0,16})")
_CONFIG_BYTES: Final = 1024 * 1024
_WORDS: Final = (b"max_messages", b"plugins", b"auto_prune", b"retention_days", b"\\")
_DAYS: Final = re.compile(rb"retention_days[\"']?\s*:[\s\"']*(\d{1,9})")
_RETENTION_DAYS: Final = 90
"""What Hermes takes if the configuration does not say it."""
HOST_CONFIG: Final = "/etc/hermes/config.yaml"
"""Hermes lays it over the config.yaml of every home of the host."""


def cron_ticker_at(home: str) -> float | None:
    """Return when the cron ticker last ran; None if it never did (Hermes before 0.18)."""
    return read_number(os.path.join(home, "cron", "ticker_heartbeat"))


def hermes_version(home: str) -> str | None:
    """Return the version of the Hermes that last checked for updates; no other place notes one."""
    try:
        found = read_json(os.path.join(home, ".update_check"), 64 * 1024)
    except HomeError:
        return None
    version = found.get("ver") if isinstance(found, dict) else None
    return version if isinstance(version, str) and _VERSION.fullmatch(version) else None


class HomeConfig(NamedTuple):
    """The settings that matter in a home's own config.yaml."""

    marathon_limit: int | None = None
    """`session_reset.max_messages`, if it is set."""
    enables_plugins: bool = False
    """True if `plugins.enabled` names plugins.

    Plugins installed by pip load only if named there.
    """
    prunes_itself: bool = False
    """When a Hermes starts, it deletes ended sessions (`sessions.auto_prune`)."""
    retention_days: int | None = None
    """It deletes those that began so long ago; None if it is not said here."""


def prunes_after_days(configs: Sequence[HomeConfig]) -> int | None:
    """Return the age at which Hermes deletes an ended session; None: it does not.

    Of the home and of its host: each of them may turn it on, and each may say when. A Hermes up to
    0.16, or in a container, does not read the host's: then the default counts for the home.
    """
    if not any(each.prunes_itself for each in configs):
        return None
    days = {each.retention_days for each in configs if each.retention_days is not None}
    if any(each.prunes_itself and each.retention_days is None for each in configs):
        days.add(_RETENTION_DAYS)
    return min(days)


def read_config(home: str) -> HomeConfig:
    """Read config.yaml of a home.

    One that cannot be read may enable plugins, and pruning after any time.
    """
    return _read_config(os.path.join(home, "config.yaml"))


def read_host_config(path: str = HOST_CONFIG) -> HomeConfig:
    """Read what the host's administrator sets for every home; Hermes reads it from 0.17 on."""
    return _read_config(path) if os.path.lexists(path) else HomeConfig()


def _read_config(path: str) -> HomeConfig:
    try:
        content = read_small(path, _CONFIG_BYTES)
    except HomeError:
        return HomeConfig(enables_plugins=True, prunes_itself=True, retention_days=0)
    # An escape in a quoted key may spell any of the names.
    if not content or not any(word in content for word in _WORDS):
        return HomeConfig()
    from exporter.hermes.yaml_document import read_yaml

    try:
        document = read_yaml(content)
    except ValueError:
        # Not valid YAML, or with aliases: assume that what it mentions is on.
        may_say = {word: word in content or b"\\" in content for word in _WORDS}
        return HomeConfig(
            enables_plugins=may_say[b"plugins"],
            prunes_itself=may_say[b"auto_prune"],
            retention_days=_least_days(content),
        )
    limit = _get(_get(document, "session_reset"), "max_messages")
    if limit is None:
        limit = _get(_get(_get(document, "gateway"), "session_reset"), "max_messages")
    return HomeConfig(
        limit if type(limit) is int and limit > 0 else None,
        bool(_get(_get(document, "plugins"), "enabled")),
        bool(_get(_get(document, "sessions"), "auto_prune")),
        _retention_days(_get(_get(document, "sessions"), "retention_days")),
    )


def _retention_days(said: Any) -> int | None:
    try:
        return int(said)  # as Hermes reads it
    except (TypeError, ValueError, OverflowError):
        # Hermes puts variables of its environment in: it may be any number.
        return 0 if isinstance(said, str) and "${" in said else None


def _least_days(content: bytes) -> int | None:
    """Return the least number of days that a document mentions; 0 if it may mention another."""
    said = _DAYS.findall(content)
    if len(said) < content.count(b"retention_days") or b"\\" in content:
        return 0
    return min(map(int, said), default=None)


def has_plugin_folders(home: str) -> bool:
    """True if a user put plugins or gateway hooks here. Each of them is a folder."""
    return any(_has_folders(os.path.join(home, name)) for name in ("plugins", "hooks"))


def _has_folders(path: str) -> bool:
    try:
        with os.scandir(path) as found:
            return any(each.is_dir() and not each.name.startswith((".", "_")) for each in found)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # the folder may hold anything


def _get(mapping: Any, key: str) -> Any:
    return mapping.get(key) if isinstance(mapping, dict) else None
