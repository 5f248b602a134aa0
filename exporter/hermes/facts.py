"""Small facts that Hermes notes in files of their own."""

from __future__ import annotations

import os
import re
from typing import Any, Final

import yaml

from exporter.errors import HomeError
from exporter.hermes.files import read_json, read_number, read_small

_VERSION: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}([a-z0-9.+-]{0,16})")
_CONFIG_BYTES: Final = 1024 * 1024


def cron_ticker_at(home: str) -> float | None:
    """When the cron ticker last went round; None where it never did (Hermes before 0.18)."""
    return read_number(os.path.join(home, "cron", "ticker_heartbeat"))


def hermes_version(home: str) -> str | None:
    """The Hermes that last looked for updates from this home, the only place that notes one."""
    try:
        found = read_json(os.path.join(home, ".update_check"), 64 * 1024)
    except HomeError:
        return None
    version = found.get("ver") if isinstance(found, dict) else None
    return version if isinstance(version, str) and _VERSION.fullmatch(version) else None


def marathon_limit(home: str) -> int | None:
    """`session_reset.max_messages` of the home's own config.yaml, where it is set."""
    try:
        content = read_small(os.path.join(home, "config.yaml"), _CONFIG_BYTES)
    except HomeError:
        return None
    if not content or b"max_messages" not in content:
        return None
    try:
        document = yaml.load(content, NoAliases)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    limit = _get(_get(document, "session_reset"), "max_messages")
    if limit is None:
        limit = _get(_get(_get(document, "gateway"), "session_reset"), "max_messages")
    return limit if type(limit) is int and limit > 0 else None


def _get(mapping: Any, key: str) -> Any:
    return mapping.get(key) if isinstance(mapping, dict) else None


class NoAliases(yaml.SafeLoader):
    """A loader that a document of nested aliases cannot make explode."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)
